//! `box`: the subject is a geo point in a box.

use super::Operator;
use crate::Result;
use crate::condition::Subject;
use crate::geo::{Area, Region};
use crate::json::{Content, Fault, Form, Member, Members, Shape, Sides};
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;

/// Test that the subject is a geo point between two parallels and two meridians.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WithinBox(pub Sides);

impl WithinBox {
    /// Converts the box to an area.
    ///
    /// # Errors
    ///
    /// Never fails; [`Region::new`] checks the sides.
    pub fn area(&self) -> Result<Area> {
        let Sides {
            south,
            west,
            north,
            east,
        } = self.0;
        Ok(Area::Box {
            south,
            west,
            north,
            east,
        })
    }
}

impl Operator for WithinBox {
    const LISTED: &'static [&'static str] = &["box"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "box",
        timelines: Some(Form {
            shape: Shape::Box,
            doc: "Test: a geo point, in an attribute or a column, is between these parallels and meridians.",
        }),
        values: None,
        unused: "",
    }];
    const CODES: [Option<u8>; 2] = [Some(12), None];
    const DESCRIBED: &'static str = "an area";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.sides("box").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("box", Content::Box(self.0))]
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if !matches!(subject, Subject::Attribute(_) | Subject::Column(_)) {
            return Ok(None);
        }
        Ok(Some(Node::Area(subject.clone(), Box::new(Region::new(&self.area()?)?))))
    }

    fn encode(&self, to: &mut StableBytes) {
        // Circles (0), boxes (1) and polygons (2) share the operator code 12.
        let Sides {
            south,
            west,
            north,
            east,
        } = self.0;
        to.choice(1);
        [south, west, north, east].iter().for_each(|side| to.number(side.to_bits()));
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn lies_in_a_box() {
        assert!(holds(r#"{"attribute":"site","box":{"south":52,"west":13,"north":53,"east":14}}"#));
        assert!(!holds(r#"{"attribute":"site","box":{"south":52,"west":14,"north":53,"east":15}}"#));
        assert!(holds(r#"{"column":"site","box":{"south":52,"west":13,"north":53,"east":14}}"#));
        assert!(!holds(r#"{"column":"items","box":{"south":52,"west":13,"north":53,"east":14}}"#));
        let error = refuses(r#"{"attribute":"site","box":{"south":2,"west":0,"north":1,"east":1}}"#);
        assert!(error.contains("is north of its north"), "{error}");
    }
}

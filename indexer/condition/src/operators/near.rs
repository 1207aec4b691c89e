//! `near`: the subject is a geo point in a circle.

use super::Operator;
use crate::Result;
use crate::condition::Subject;
use crate::geo::{Area, Region};
use crate::json::{Circle, Content, Fault, Form, Member, Members, Shape};
use crate::literal::LatLon;
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;

/// Test that the subject is a geo point within a distance of a position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Near(pub Circle);

impl Near {
    /// Converts the circle to an area.
    ///
    /// # Errors
    ///
    /// [`crate::ConditionError::InvalidArea`] if the position is out of range.
    pub fn area(&self) -> Result<Area> {
        let Circle { lat, lon, meters } = self.0;
        let center = LatLon { lat, lon }.checked()?;
        Ok(Area::Circle { center, meters })
    }
}

impl Operator for Near {
    const LISTED: &'static [&'static str] = &["near"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "near",
        timelines: Some(Form {
            shape: Shape::Circle,
            doc: "Test: a geo point, in an attribute or a column, is within this distance of a position.",
        }),
        values: None,
        unused: "",
    }];
    const CODES: [Option<u8>; 2] = [Some(12), None];
    const DESCRIBED: &'static str = "an area";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.circle("near").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("near", Content::Circle(self.0))]
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if !matches!(subject, Subject::Attribute(_) | Subject::Column(_)) {
            return Ok(None);
        }
        Ok(Some(Node::Area(subject.clone(), Box::new(Region::new(&self.area()?)?))))
    }

    fn encode(&self, to: &mut StableBytes) {
        // Circles (0), boxes (1) and polygons (2) share the operator code 12.
        let Circle { lat, lon, meters } = self.0;
        to.choice(0);
        to.lat_lon(LatLon { lat, lon });
        to.number(meters.to_bits());
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn lies_in_a_circle() {
        assert!(holds(r#"{"attribute":"site","near":{"lat":52.5,"lon":13.41,"meters":1000}}"#));
        assert!(!holds(r#"{"attribute":"site","near":{"lat":52.5,"lon":13.41,"meters":100}}"#));
        assert!(holds(r#"{"column":"site","near":{"lat":52.5,"lon":13.41,"meters":1000}}"#));
        assert!(!holds(r#"{"column":"site","near":{"lat":52.5,"lon":13.41,"meters":100}}"#));
        assert!(!holds(r#"{"column":"note","near":{"lat":52.5,"lon":13.41,"meters":1000}}"#));
        assert!(!holds(r#"{"column":"missing","near":{"lat":0,"lon":0,"meters":1000}}"#));
        assert!(refuses(r#"{"tag":"host","near":{"lat":0,"lon":0,"meters":1}}"#).contains("an area cannot be applied"));
        let error = refuses(r#"{"attribute":"site","near":{"lat":0,"lon":0,"meters":-1}}"#);
        assert!(error.contains("0 metres or more"), "{error}");
    }
}

//! `polygon`: the subject is a geo point in a polygon.

use super::Operator;
use crate::Result;
use crate::condition::Subject;
use crate::geo::{Area, Region};
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::literal::LatLon;
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;

/// Test that the subject is a geo point within the ring of these corners.
#[derive(Debug, Clone, PartialEq)]
pub struct Polygon(pub Vec<LatLon>);

impl Polygon {
    /// Converts the corners to an area.
    ///
    /// # Errors
    ///
    /// [`crate::ConditionError::InvalidArea`] if a corner is out of range.
    pub fn area(&self) -> Result<Area> {
        let corners = self.0.iter().map(|corner| corner.checked());
        Ok(Area::Polygon(corners.collect::<Result<_>>()?))
    }
}

impl Operator for Polygon {
    const LISTED: &'static [&'static str] = &["polygon"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "polygon",
        timelines: Some(Form {
            shape: Shape::Ring,
            doc: "Test: a geo point, in an attribute or a column, is within the ring of these 3 to 1,000 corners, in either direction.\nIts sides are straight in degrees and take the shorter way; a ring around the globe contains the pole of its hemisphere.",
        }),
        values: None,
        unused: "",
    }];
    const CODES: [Option<u8>; 2] = [Some(12), None];
    const DESCRIBED: &'static str = "an area";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.ring("polygon").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("polygon", Content::Ring(self.0.clone()))]
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if !matches!(subject, Subject::Attribute(_) | Subject::Column(_)) {
            return Ok(None);
        }
        Ok(Some(Node::Area(subject.clone(), Box::new(Region::new(&self.area()?)?))))
    }

    fn encode(&self, to: &mut StableBytes) {
        // Circles (0), boxes (1) and polygons (2) share the operator code 12.
        to.choice(2);
        to.number(self.0.len() as u64);
        self.0.iter().for_each(|corner| to.lat_lon(*corner));
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn lies_in_a_polygon() {
        let ring = |north: u8| {
            format!(
                r#"{{"attribute":"site","polygon":[{{"lat":50,"lon":10}},{{"lat":50,"lon":16}},{{"lat":{north},"lon":13}}]}}"#
            )
        };
        assert!(holds(&ring(60)));
        assert!(!holds(&ring(51)));
        assert!(holds(&ring(60).replace("attribute", "column")));
        assert!(!holds(&ring(51).replace("attribute", "column")));
        let error = refuses(r#"{"attribute":"site","polygon":[{"lat":1,"lon":2}]}"#);
        assert!(error.contains("at least three different corners"), "{error}");
    }
}

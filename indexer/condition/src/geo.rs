//! Areas of the earth's surface: what a circle, a box and a polygon hold, and which part of the index may hold it.
//!
//! The earth is a sphere here. Longitudes are compared round the globe, so an area may lie across the meridian of 180
//! degrees; a pole has every longitude.
//!
//! A polygon's edges are straight in degrees, as in GeoJSON, and go the short way round. Whether it holds a place is
//! decided by the edges that are crossed on the way from the place to the north pole, along its meridian: an even number
//! means that both are on the same side. A ring that goes once round the globe holds the pole of the hemisphere in
//! which it lies.

mod cells;

use tideline_model::GeoPoint;

use crate::{ConditionError, Result};

pub use cells::{Rectangle, cell_of, ranges};

/// The mean radius of the earth, in metres (IUGG).
const EARTH_RADIUS: f64 = 6_371_008.8;
/// Most corners of a polygon: each place is compared with each edge.
pub const CORNERS_MAX: usize = 1_000;
/// What a rectangle is widened by, in degrees, so that rounding leaves nothing out: about 0.1 mm.
const ROUNDING: f64 = 1e-9;

/// A part of the earth's surface; what lies on its border belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub enum Area {
    /// Everything up to a distance, measured on a sphere of the earth's mean radius.
    Circle {
        /// The middle.
        center: GeoPoint,
        /// The distance, in metres, 0 or more.
        meters: f64,
    },
    /// Everything between two parallels and two meridians. From 170 to -170 degrees it is 20 degrees wide.
    Box {
        /// The latitude of the southern side.
        south: f64,
        /// The longitude of the western side.
        west: f64,
        /// The latitude of the northern side.
        north: f64,
        /// The longitude of the eastern side.
        east: f64,
    },
    /// What a ring of corners encloses, in either direction; where it crosses itself, what it encloses twice is outside.
    Polygon(Vec<GeoPoint>),
}

/// An area, checked.
#[derive(Debug, Clone)]
pub enum Region {
    /// A circle.
    Circle {
        /// The middle.
        center: GeoPoint,
        /// The radius, in metres.
        meters: f64,
    },
    /// A box.
    Box(Sides),
    /// A polygon.
    Polygon(Polygon),
}

/// The sides of a box.
#[derive(Debug, Clone, Copy)]
pub struct Sides {
    south: f64,
    north: f64,
    west: f64,
    /// Degrees to the east of `west`, up to 360.
    width: f64,
}

/// A checked ring.
#[derive(Debug, Clone)]
pub struct Polygon {
    edges: Vec<Edge>,
    corners: Vec<GeoPoint>,
    holds_north: bool,
    holds_south: bool,
}

/// A side of a polygon, from its western end.
#[derive(Debug, Clone, Copy)]
struct Edge {
    west: GeoPoint,
    east: GeoPoint,
    /// Degrees from west to east.
    width: f64,
}

/// The distance between two places on the sphere, in metres.
pub fn meters_between(one: GeoPoint, other: GeoPoint) -> f64 {
    let (a, b) = (one.latitude().to_radians(), other.latitude().to_radians());
    let turn = (other.longitude() - one.longitude()).to_radians();
    let haversine = ((b - a) / 2.0).sin().powi(2) + a.cos() * b.cos() * (turn / 2.0).sin().powi(2);
    2.0 * EARTH_RADIUS * haversine.sqrt().min(1.0).asin()
}

/// The longitude with one number for the meridian of 180 degrees, which has two.
fn meridian(longitude: f64) -> f64 {
    if longitude == 180.0 { -180.0 } else { longitude }
}

/// Degrees to the east from one meridian to another, 0 to 360.
fn eastward(from: f64, to: f64) -> f64 {
    (meridian(to) - meridian(from)).rem_euclid(360.0)
}

fn is_pole(point: GeoPoint) -> bool {
    point.latitude().abs() == 90.0
}

impl Region {
    /// Checks an area.
    ///
    /// # Errors
    ///
    /// If it has no inside, or too many corners.
    pub fn new(area: &Area) -> Result<Self> {
        match area {
            Area::Circle { center, meters } => {
                let (center, meters) = (*center, *meters);
                if !(meters.is_finite() && meters >= 0.0) {
                    return invalid(format!("a distance is 0 metres or more, not {meters}"));
                }
                Ok(Self::Circle { center, meters })
            }
            Area::Box {
                south,
                west,
                north,
                east,
            } => Sides::new([*south, *west, *north, *east]).map(Self::Box),
            Area::Polygon(corners) => Polygon::new(corners).map(Self::Polygon),
        }
    }

    /// Whether a place lies in it.
    pub fn contains(&self, point: GeoPoint) -> bool {
        match self {
            Self::Circle { center, meters } => meters_between(*center, point) <= *meters,
            Self::Box(sides) => sides.contains(point),
            Self::Polygon(polygon) => polygon.contains(point),
        }
    }

    /// Rectangles, none across the meridian of 180 degrees, that together hold all of it.
    pub fn rectangles(&self) -> Vec<Rectangle> {
        match self {
            Self::Circle { center, meters } => around(*center, *meters),
            Self::Box(sides) => sides.rectangles(),
            Self::Polygon(polygon) => polygon.rectangles(),
        }
    }
}

impl Sides {
    fn new([south, west, north, east]: [f64; 4]) -> Result<Self> {
        if GeoPoint::new(south, west).is_none() || GeoPoint::new(north, east).is_none() {
            return invalid(format!(
                "a box has latitudes within ±90 and longitudes within ±180; it was south {south}, west {west}, \
                 north {north}, east {east}"
            ));
        }
        if south > north {
            return invalid(format!(
                "the south of a box, {south}, lies north of its north, {north}"
            ));
        }
        let width = if east - west >= 360.0 {
            360.0
        } else {
            eastward(west, east)
        };
        Ok(Self {
            south,
            north,
            west,
            width,
        })
    }

    fn contains(&self, point: GeoPoint) -> bool {
        let is_between = (self.south..=self.north).contains(&point.latitude());
        is_between && (is_pole(point) || eastward(self.west, point.longitude()) <= self.width)
    }

    fn rectangles(&self) -> Vec<Rectangle> {
        let Self { south, north, .. } = *self;
        let mut rectangles = Rectangle::strip(south, north, self.west, self.width);
        let poles = [(south, -90.0), (north, 90.0)];
        let touched = poles.iter().filter(|(side, pole)| side == pole);
        rectangles.extend(touched.map(|(_, pole)| Rectangle::all_round(*pole, *pole)));
        rectangles
    }
}

/// What holds a circle.
fn around(center: GeoPoint, meters: f64) -> Vec<Rectangle> {
    let angle = meters / EARTH_RADIUS;
    let reach = angle.to_degrees() + ROUNDING;
    let (south, north) = (center.latitude() - reach, center.latitude() + reach);
    let turn = angle.sin() / center.latitude().to_radians().cos();
    if south <= -90.0 || north >= 90.0 || turn >= 1.0 {
        return vec![Rectangle::all_round(south.max(-90.0), north.min(90.0))];
    }
    let aside = turn.asin().to_degrees() * (1.0 + ROUNDING);
    Rectangle::strip(south, north, center.longitude() - aside, 2.0 * aside)
}

impl Polygon {
    fn new(corners: &[GeoPoint]) -> Result<Self> {
        if corners.len() > CORNERS_MAX + 1 {
            return Err(ConditionError::OverLimit {
                what: "corners of a polygon",
                limit: CORNERS_MAX,
                actual: corners.len(),
            });
        }
        let mut ring = corners.to_vec();
        ring.dedup();
        if ring.len() > 1 && ring.first() == ring.last() {
            ring.pop();
        }
        if ring.len() < 3 {
            let count = ring.len();
            return invalid(format!(
                "a polygon has at least three different corners; it has {count}"
            ));
        }
        let mut edges = Vec::with_capacity(ring.len());
        // What the ring turns to the east in all, and its latitudes weighted by what they turn.
        let (mut turn, mut weighted) = (0.0, 0.0);
        for (at, from) in ring.iter().enumerate() {
            let to = ring[(at + 1) % ring.len()];
            // Signed, since what is a little below 0 is 360 degrees to the east when rounded.
            let turned = meridian(to.longitude()) - meridian(from.longitude());
            if turned.abs() == 180.0 && !is_pole(*from) && !is_pole(to) {
                return invalid(format!(
                    "the polygon's edge from {} to {} degrees of longitude goes half round the globe: there is no \
                     short way; put a corner between",
                    from.longitude(),
                    to.longitude()
                ));
            }
            let step = match turned {
                _ if turned > 180.0 => turned - 360.0,
                _ if turned < -180.0 => turned + 360.0,
                _ => turned,
            };
            turn += step;
            weighted += step * (from.latitude() + to.latitude()) / 2.0;
            edges.push(Edge::new(*from, to, step));
        }
        let (holds_north, holds_south) = match (turn / 360.0).round() as i64 {
            0 => (false, false),
            1 | -1 if weighted / turn > 0.0 => (true, false),
            1 | -1 if weighted / turn < 0.0 => (false, true),
            1 | -1 => {
                return invalid(
                    "a polygon round the globe lies in one hemisphere, so that it means one pole",
                );
            }
            turns => {
                return invalid(format!(
                    "a polygon goes round the globe once at most, not {turns} times"
                ));
            }
        };
        Ok(Self {
            edges,
            corners: ring,
            holds_north,
            holds_south,
        })
    }

    fn contains(&self, point: GeoPoint) -> bool {
        if is_pole(point) {
            let holds = if point.latitude() > 0.0 {
                self.holds_north
            } else {
                self.holds_south
            };
            return holds
                || self
                    .corners
                    .iter()
                    .any(|corner| corner.latitude() == point.latitude());
        }
        let mut is_inside = self.holds_north;
        for edge in &self.edges {
            match edge.above(point) {
                Above::On => return true,
                Above::Yes => is_inside = !is_inside,
                Above::No => {}
            }
        }
        is_inside
    }

    fn rectangles(&self) -> Vec<Rectangle> {
        let latitudes = self.corners.iter().map(|corner| corner.latitude());
        let (south, north) = latitudes.fold((90.0f64, -90.0f64), |(south, north), latitude| {
            (south.min(latitude), north.max(latitude))
        });
        if self.holds_north || self.holds_south || south == -90.0 || north == 90.0 {
            let south = if self.holds_south { -90.0 } else { south };
            let north = if self.holds_north { 90.0 } else { north };
            return vec![Rectangle::all_round(south, north)];
        }
        let strip = |edge: &Edge| Rectangle::strip(south, north, edge.west.longitude(), edge.width);
        let strips = self.edges.iter().flat_map(strip);
        Rectangle::joined(strips.collect())
    }
}

/// Where an edge is, seen from a place along its meridian.
enum Above {
    Yes,
    No,
    /// The place lies on it.
    On,
}

impl Edge {
    /// The edge between two corners, `step` degrees to the east, or the west where it is negative.
    fn new(from: GeoPoint, to: GeoPoint, step: f64) -> Self {
        let (west, east) = if step < 0.0 { (to, from) } else { (from, to) };
        let width = eastward(west.longitude(), east.longitude());
        Self { west, east, width }
    }

    /// An edge holds the meridian of its western end and not that of its eastern one, so that a corner counts once.
    /// Meridians are compared as they are: differences are rounded, and edges that meet would not agree.
    fn above(&self, point: GeoPoint) -> Above {
        let (from, to) = (self.west.latitude(), self.east.latitude());
        let [west, east, at] = [self.west, self.east, point].map(|place| meridian(place.longitude()));
        if west == east {
            let is_on = at == west && (from.min(to)..=from.max(to)).contains(&point.latitude());
            return if is_on { Above::On } else { Above::No };
        }
        let holds = if west < east {
            west <= at && at < east
        } else {
            west <= at || at < east
        };
        let latitude = if at == east {
            to
        } else if holds {
            from + (to - from) * (eastward(west, at) / self.width)
        } else {
            return Above::No;
        };
        if latitude == point.latitude() {
            Above::On
        } else if holds && latitude > point.latitude() {
            Above::Yes
        } else {
            Above::No
        }
    }
}

fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(ConditionError::InvalidArea(what.into()))
}

#[cfg(test)]
mod tests;

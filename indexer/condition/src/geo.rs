//! Areas on the earth's surface: containment in circles, boxes and polygons, and their bounding rectangles for the
//! index.
//!
//! The earth is modeled as a sphere. Longitudes are compared modulo 360 degrees, so an area may cross the meridian
//! of 180 degrees. A pole is on every meridian.
//!
//! The edges of a polygon are straight in degrees, as in GeoJSON, and take the shorter way around the globe. A point
//! is inside if the path from the point to the north pole, along a meridian, crosses an odd number of edges. If the
//! polygon contains the north pole, the number must be even instead. A ring that goes once around the globe contains
//! the pole of the hemisphere in which its mean latitude is.

mod cells;

use tideline_model::GeoPoint;

use crate::{ConditionError, Result};

pub use cells::{Rectangle, cell_of, ranges};

/// Mean radius of the earth in meters (IUGG).
const EARTH_RADIUS: f64 = 6_371_008.8;
/// Maximum number of corners of a polygon, without the closing corner. One more corner is accepted, even if it does
/// not close the ring. The limit bounds the time of a test, which compares the point with every edge.
pub const CORNERS_MAX: usize = 1_000;
/// Margin of rectangles in degrees, about 0.1 mm, so that rounding excludes no point.
const ROUNDING: f64 = 1e-9;

/// An area on the earth's surface, including its border.
#[derive(Debug, Clone, PartialEq)]
pub enum Area {
    /// All points within a distance, measured on a sphere of the earth's mean radius.
    Circle {
        /// Center of the circle.
        center: GeoPoint,
        /// Radius in meters, 0 or more.
        meters: f64,
    },
    /// All points between two parallels and two meridians. A box from 170 to -170 degrees is 20 degrees wide.
    Box {
        /// Latitude of the southern side.
        south: f64,
        /// Longitude of the western side.
        west: f64,
        /// Latitude of the northern side.
        north: f64,
        /// Longitude of the eastern side.
        east: f64,
    },
    /// All points enclosed by a ring of corners, which may run in either direction. Parts enclosed twice by a
    /// self-intersecting ring are outside.
    Polygon(Vec<GeoPoint>),
}

/// A validated area.
#[derive(Debug, Clone)]
pub enum Region {
    /// A circle.
    Circle {
        /// Center of the circle.
        center: GeoPoint,
        /// Radius in meters.
        meters: f64,
    },
    /// A box.
    Box(Sides),
    /// A polygon.
    Polygon(Polygon),
}

/// Sides of a validated box.
#[derive(Debug, Clone, Copy)]
pub struct Sides {
    south: f64,
    north: f64,
    west: f64,
    /// Width in degrees eastward from `west`, 0 to 360.
    width: f64,
}

/// A validated polygon.
#[derive(Debug, Clone)]
pub struct Polygon {
    edges: Vec<Edge>,
    corners: Vec<GeoPoint>,
    holds_north: bool,
    holds_south: bool,
}

/// Edge of a polygon, oriented eastward.
#[derive(Debug, Clone, Copy)]
struct Edge {
    west: GeoPoint,
    east: GeoPoint,
    /// Width in degrees.
    width: f64,
}

/// Returns the distance between two points on the sphere in meters.
pub fn meters_between(one: GeoPoint, other: GeoPoint) -> f64 {
    let (a, b) = (one.latitude().to_radians(), other.latitude().to_radians());
    let turn = (other.longitude() - one.longitude()).to_radians();
    let haversine = ((b - a) / 2.0).sin().powi(2) + a.cos() * b.cos() * (turn / 2.0).sin().powi(2);
    2.0 * EARTH_RADIUS * haversine.sqrt().min(1.0).asin()
}

/// Normalizes the longitude 180 to -180.
fn meridian(longitude: f64) -> f64 {
    if longitude == 180.0 { -180.0 } else { longitude }
}

/// Returns the eastward distance between two meridians in degrees, 0 to 360.
fn eastward(from: f64, to: f64) -> f64 {
    (meridian(to) - meridian(from)).rem_euclid(360.0)
}

fn is_pole(point: GeoPoint) -> bool {
    point.latitude().abs() == 90.0
}

impl Region {
    /// Validates an area.
    ///
    /// # Errors
    ///
    /// [`ConditionError::InvalidArea`] for an invalid radius, box or ring, [`ConditionError::OverLimit`] for more
    /// than [`CORNERS_MAX`] + 1 corners.
    pub fn new(area: &Area) -> Result<Self> {
        match area {
            Area::Circle { center, meters } => {
                let (center, meters) = (*center, *meters);
                if !(meters.is_finite() && meters >= 0.0) {
                    return invalid(format!("a distance must be 0 metres or more, not {meters}"));
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

    /// Returns true if the point is in the region.
    pub fn contains(&self, point: GeoPoint) -> bool {
        match self {
            Self::Circle { center, meters } => meters_between(*center, point) <= *meters,
            Self::Box(sides) => sides.contains(point),
            Self::Polygon(polygon) => polygon.contains(point),
        }
    }

    /// Returns rectangles that together cover the region. No rectangle crosses the meridian of 180 degrees.
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
                "a box needs latitudes within ±90 and longitudes within ±180; it was south {south}, west {west}, \
                 north {north}, east {east}"
            ));
        }
        if south > north {
            return invalid(format!(
                "the south side of a box, {south}, is north of its north side, {north}"
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

/// Returns rectangles that cover a circle.
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
                "a polygon needs at least three different corners; it has {count}"
            ));
        }
        let mut edges = Vec::with_capacity(ring.len());
        // Total eastward turn of the ring, and the sum of its latitudes weighted by the turn.
        let (mut turn, mut weighted) = (0.0, 0.0);
        for (at, from) in ring.iter().enumerate() {
            let to = ring[(at + 1) % ring.len()];
            // The difference is signed, because `eastward` would return 360 degrees for a value slightly below 0.
            let turned = meridian(to.longitude()) - meridian(from.longitude());
            if turned.abs() == 180.0 && !is_pole(*from) && !is_pole(to) {
                return invalid(format!(
                    "the polygon's edge from {} to {} degrees of longitude goes half round the globe, so neither \
                     way is shorter; add a corner between",
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
                    "a polygon round the globe must stay in one hemisphere, so that it encloses one pole",
                );
            }
            turns => {
                return invalid(format!(
                    "a polygon may go round the globe once at most, not {turns} times"
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

/// Position of an edge relative to a point, along the meridian of the point.
enum Above {
    Yes,
    No,
    /// The point is on the edge.
    On,
}

impl Edge {
    /// Creates the edge between two corners. `step` is its signed width in degrees, positive eastward.
    fn new(from: GeoPoint, to: GeoPoint, step: f64) -> Self {
        let (west, east) = if step < 0.0 { (to, from) } else { (from, to) };
        let width = eastward(west.longitude(), east.longitude());
        Self { west, east, width }
    }

    /// Locates the edge relative to a point. An edge includes the meridian of its western end but not of its eastern
    /// one, so that a shared corner counts once. Meridians are compared exactly: rounded differences would be
    /// inconsistent between adjacent edges.
    fn above(&self, point: GeoPoint) -> Above {
        let (from, to) = (self.west.latitude(), self.east.latitude());
        let [west, east, at] = [self.west, self.east, point].map(|point| meridian(point.longitude()));
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

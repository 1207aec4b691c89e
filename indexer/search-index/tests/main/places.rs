//! Areas for tests, with an independent implementation of containment.
//!
//! The model uses this implementation, so that the model shares no code with the crate under test.

use tideline_condition::Test;
use tideline_condition::geo::Area;
use tideline_condition::json::{Circle, Sides};
use tideline_condition::operators::{Near, Polygon, WithinBox};
use tideline_model::GeoPoint;

pub(crate) fn place(latitude: f64, longitude: f64) -> GeoPoint {
    GeoPoint::new(latitude, longitude).expect("a valid point")
}

/// A polygon and its containment test; longitudes in the test are from 0 to 360.
type Ring = (&'static [(f64, f64)], fn(f64, f64) -> bool);

const RINGS: [Ring; 4] = [
    (&[(0.0, 0.0), (0.0, 40.0), (40.0, 0.0)], |lat, lon| {
        lat >= 0.0 && lat + lon <= 40.0
    }),
    (
        &[(-20.0, 170.0), (30.0, 170.0), (30.0, -160.0), (-20.0, -160.0)],
        |lat, lon| (-20.0..=30.0).contains(&lat) && (170.0..=200.0).contains(&lon),
    ),
    (&[(50.0, 0.0), (50.0, 120.0), (50.0, -120.0)], |lat, _| {
        lat >= 50.0
    }),
    (&[(-50.0, 0.0), (-50.0, 120.0), (-50.0, -120.0)], |lat, _| {
        lat <= -50.0
    }),
];

/// Returns areas of every kind: small, large, across the date line, around a pole.
pub(crate) fn areas() -> Vec<Area> {
    let circle = |latitude, longitude, meters| Area::Circle {
        center: place(latitude, longitude),
        meters,
    };
    let sides = |south, west, north, east| Area::Box {
        south,
        west,
        north,
        east,
    };
    let rings = RINGS.map(|(corners, _)| {
        let corners = corners
            .iter()
            .map(|(latitude, longitude)| place(*latitude, *longitude));
        Area::Polygon(corners.collect())
    });
    let mut areas = vec![
        circle(0.0, 0.0, 3_000_000.0),
        circle(10.0, 179.0, 2_500_000.0),
        circle(88.0, 30.0, 1_000_000.0),
        circle(-60.0, -170.0, 19_000_000.0),
        circle(12.25, 13.25, 0.0),
        sides(-30.0, -20.0, 30.0, 25.0),
        sides(-90.0, 160.0, 10.0, -150.0),
        sides(40.0, -180.0, 90.0, 180.0),
    ];
    areas.extend(rings);
    areas
}

pub(crate) fn lies_within(point: GeoPoint, area: &Area) -> bool {
    let (latitude, longitude) = (point.latitude(), point.longitude());
    let around = (longitude + 360.0) % 360.0;
    match area {
        Area::Circle { center, meters } => {
            let vector = |point: &GeoPoint| {
                let (lat, lon) = (point.latitude().to_radians(), point.longitude().to_radians());
                [lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()]
            };
            let (a, b) = (vector(center), vector(&point));
            let chord: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
            2.0 * 6_371_008.8 * (chord / 2.0).min(1.0).asin() <= *meters
        }
        Area::Box {
            south,
            west,
            north,
            east,
        } => {
            let is_between = if west <= east {
                (*west..=*east).contains(&longitude)
            } else {
                longitude >= *west || longitude <= *east
            };
            (*south..=*north).contains(&latitude) && (is_between || latitude.abs() == 90.0)
        }
        Area::Polygon(corners) => {
            let is_ring = |ring: &&Ring| {
                ring.0
                    .iter()
                    .zip(corners)
                    .all(|(one, other)| place(one.0, one.1) == *other)
            };
            let (_, holds) = RINGS.iter().find(is_ring).expect("one of ours");
            holds(latitude, around)
        }
    }
}

/// Returns the test for an area.
pub(crate) fn within(area: &Area) -> Test {
    match area {
        Area::Circle { center, meters } => Near(Circle {
            lat: center.latitude(),
            lon: center.longitude(),
            meters: *meters,
        })
        .into(),
        Area::Box {
            south,
            west,
            north,
            east,
        } => WithinBox(Sides {
            south: *south,
            west: *west,
            north: *north,
            east: *east,
        })
        .into(),
        Area::Polygon(corners) => Polygon(corners.iter().map(|corner| (*corner).into()).collect()).into(),
    }
}

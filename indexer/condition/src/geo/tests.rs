//! Tests of distances, containment (also at the date line and the poles), invalid areas, and ranges on the Z-order
//! curve.
//!
//! Random areas and points check that the ranges of the curve cover each area, and that rotating the globe does not
//! change a result.

use proptest::prelude::*;

use super::*;

fn geo_point(latitude: f64, longitude: f64) -> GeoPoint {
    GeoPoint::new(latitude, longitude).expect("a valid point")
}

fn region(area: &Area) -> Region {
    Region::new(area).expect("a sound area")
}

fn ring(corners: &[(f64, f64)]) -> Area {
    Area::Polygon(corners.iter().map(|(lat, lon)| geo_point(*lat, *lon)).collect())
}

fn assert_holds(area: &Area, inside: &[(f64, f64)], outside: &[(f64, f64)]) {
    let region = region(area);
    for (expected, places) in [(true, inside), (false, outside)] {
        for (latitude, longitude) in places {
            let point = geo_point(*latitude, *longitude);
            assert_eq!(region.contains(point), expected, "{area:?} {point:?}");
        }
    }
}

#[test]
fn distances_are_those_of_a_sphere() {
    for (one, other, meters) in [
        ((0.0, 0.0), (0.0, 180.0), 20_015_114.0),
        ((90.0, 7.0), (-90.0, -50.0), 20_015_114.0),
        ((52.520008, 13.404954), (48.856613, 2.352222), 877_464.0),
        ((10.0, 179.5), (10.0, -179.5), 109_505.0),
        ((90.0, 0.0), (90.0, 123.0), 0.0),
    ] {
        let found = meters_between(geo_point(one.0, one.1), geo_point(other.0, other.1));
        assert!((found - meters).abs() < 20.0, "{one:?} {other:?}: {found}");
    }
}

#[test]
fn boxes_cross_the_date_line_and_touch_poles() {
    let sides = |south, west, north, east| Area::Box {
        south,
        west,
        north,
        east,
    };
    assert_holds(
        &sides(-10.0, 170.0, 10.0, -170.0),
        &[(0.0, 180.0), (0.0, -180.0), (10.0, 170.0), (-10.0, -170.0)],
        &[(0.0, 169.0), (0.0, 0.0), (11.0, 180.0)],
    );
    assert_holds(
        &sides(-10.0, 170.0, 10.0, 180.0),
        &[(0.0, -180.0), (0.0, 180.0)],
        &[(0.0, -179.9)],
    );
    assert_holds(
        &sides(80.0, 0.0, 90.0, 10.0),
        &[(90.0, -120.0), (85.0, 5.0)],
        &[(85.0, 11.0)],
    );
    assert_holds(
        &sides(-90.0, -180.0, 90.0, 180.0),
        &[(0.0, 3.0), (-90.0, 3.0)],
        &[],
    );
    assert_holds(&sides(0.0, 20.0, 0.0, 20.0), &[(0.0, 20.0)], &[(0.0, 20.1)]);
}

#[test]
fn polygons_cross_the_date_line_and_hold_poles() {
    assert_holds(
        &ring(&[(0.0, 0.0), (0.0, 10.0), (10.0, 10.0), (10.0, 0.0), (0.0, 0.0)]),
        &[(5.0, 5.0), (0.0, 0.0), (10.0, 10.0), (0.0, 5.0), (5.0, 10.0)],
        &[(5.0, 10.1), (-0.1, 5.0), (90.0, 0.0), (5.0, -5.0)],
    );
    assert_holds(
        &ring(&[(-5.0, 175.0), (5.0, 175.0), (5.0, -175.0), (-5.0, -175.0)]),
        &[(0.0, 180.0), (0.0, -180.0), (0.0, 176.0), (0.0, -176.0)],
        &[(0.0, 0.0), (0.0, 174.0), (6.0, 180.0)],
    );
    for corners in [
        [(60.0, -180.0), (60.0, -60.0), (60.0, 60.0)],
        [(60.0, 60.0), (60.0, -60.0), (60.0, 180.0)],
    ] {
        assert_holds(
            &ring(&corners),
            &[(90.0, 12.0), (61.0, 100.0), (60.0, -120.0)],
            &[(59.0, 100.0), (-90.0, 0.0), (-70.0, 3.0)],
        );
    }
    assert_holds(
        &ring(&[(-60.0, 0.0), (-60.0, 90.0), (-50.0, 180.0), (-60.0, -90.0)]),
        &[(-90.0, 1.0), (-55.0, 180.0), (-80.0, 45.0)],
        &[(-55.0, 0.0), (90.0, 0.0), (0.0, 0.0)],
    );
}

#[test]
fn bad_areas_are_refused_with_the_reason() {
    for (area, said) in [
        (
            ring(&[(0.0, 0.0), (1.0, 1.0), (0.0, 0.0)]),
            "three different corners; it has 2",
        ),
        (
            ring(&[(0.0, 0.0), (1.0, 180.0), (2.0, 10.0)]),
            "half round the globe",
        ),
        (
            ring(&[(1.0, 0.0), (-1.0, 90.0), (1.0, 180.0), (-1.0, -90.0)]),
            "one hemisphere",
        ),
        (
            ring(&[0.0, 120.0, -120.0, 0.0, 120.0, -120.0].map(|lon| (60.0, lon))),
            "once at most",
        ),
        (
            Area::Polygon((0..1_002).map(|n| geo_point(f64::from(n) / 100.0, 0.0)).collect()),
            "corners of a polygon of 1002 is over the limit of 1000",
        ),
        (
            Area::Circle {
                center: geo_point(0.0, 0.0),
                meters: -1.0,
            },
            "0 metres or more",
        ),
        (
            Area::Box {
                south: 2.0,
                west: 0.0,
                north: 1.0,
                east: 1.0,
            },
            "is north of its north",
        ),
        (
            Area::Box {
                south: 2.0,
                west: 0.0,
                north: 3.0,
                east: 181.0,
            },
            "within ±180",
        ),
    ] {
        let refusal = Region::new(&area).expect_err(said).to_string();
        assert!(refusal.contains(said), "{refusal}");
    }
}

fn places() -> impl Strategy<Value = GeoPoint> {
    let edge = |most: f64| prop_oneof![4 => -most..=most, 1 => Just(most), 1 => Just(-most), 1 => Just(0.0)];
    (edge(90.0), edge(180.0)).prop_map(|(latitude, longitude)| geo_point(latitude, longitude))
}

fn areas() -> impl Strategy<Value = Area> {
    prop_oneof![
        (places(), prop_oneof![0.0..1e5, 0.0..3e7])
            .prop_map(|(center, meters)| Area::Circle { center, meters }),
        (places(), places()).prop_map(|(a, b)| Area::Box {
            south: a.latitude().min(b.latitude()),
            west: a.longitude(),
            north: a.latitude().max(b.latitude()),
            east: b.longitude(),
        }),
        prop::collection::vec(places(), 3..8).prop_map(Area::Polygon),
    ]
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(256))]

    #[test]
    fn what_is_inside_is_within_the_ranges_of_the_curve(
        area in areas(),
        points in prop::collection::vec(places(), 1..200),
    ) {
        let Ok(region) = Region::new(&area) else { return Ok(()) };
        let ranges = ranges(&region.rectangles());
        for point in points {
            let cell = cell_of(point);
            let is_listed = ranges.iter().any(|(first, last)| (*first..=*last).contains(&cell));
            prop_assert!(is_listed || !region.contains(point), "{area:?} {point:?}");
        }
    }

    /// Rotating the globe must not change a result.
    #[test]
    fn areas_turn_with_the_globe(
        corners in prop::collection::vec((-80..80i32, -60..60i32), 3..7),
        point in (-80..80i32, -60..60i32),
        turn in -180..180i32,
    ) {
        let turned = |(latitude, longitude): (i32, i32)| {
            let longitude = (longitude + turn + 180).rem_euclid(360) - 180;
            geo_point(f64::from(latitude), f64::from(longitude))
        };
        let still = |(latitude, longitude): (i32, i32)| geo_point(f64::from(latitude), f64::from(longitude));
        let one = Region::new(&Area::Polygon(corners.iter().copied().map(still).collect()));
        let other = Region::new(&Area::Polygon(corners.iter().copied().map(turned).collect()));
        prop_assert_eq!(one.is_ok(), other.is_ok());
        if let (Ok(one), Ok(other)) = (one, other) {
            prop_assert_eq!(one.contains(still(point)), other.contains(turned(point)));
        }
    }
}

#[test]
fn corners_on_nearly_one_meridian_are_not_round_the_globe() {
    let west = 13.399_999_999_999_999;
    let area = ring(&[(52.0, 13.4), (53.0, west), (53.0, 14.0), (52.0, 14.0)]);
    let outside = [(10.0, 0.0), (-80.0, -120.0), (52.1, 100.0), (52.5, 13.3)];
    assert_holds(&area, &[(52.5, 13.7), (52.1, 13.99)], &outside);
}

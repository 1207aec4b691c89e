//! Places and areas of the earth.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A place on the earth, in degrees (WGS 84).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lat": 52.52, "lon": 13.405}))]
pub struct Place {
    /// Degrees north of the equator, -90 to 90.
    pub lat: f64,
    /// Degrees east of Greenwich, -180 to 180.
    pub lon: f64,
}

/// Everything up to a distance from a place, on a sphere of the earth's mean radius.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lat": 52.52, "lon": 13.405, "meters": 5000}))]
pub struct Circle {
    /// Degrees north of the equator, -90 to 90.
    pub lat: f64,
    /// Degrees east of Greenwich, -180 to 180.
    pub lon: f64,
    /// The distance, in metres.
    pub meters: f64,
}

/// Everything between two parallels and two meridians. From `west` 170 to `east` -170 it is 20 degrees wide.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"south": 52.3, "west": 13.1, "north": 52.7, "east": 13.8}))]
pub struct GeoBox {
    /// The latitude of the southern side.
    pub south: f64,
    /// The longitude of the western side.
    pub west: f64,
    /// The latitude of the northern side.
    pub north: f64,
    /// The longitude of the eastern side.
    pub east: f64,
}

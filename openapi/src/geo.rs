//! Geo points and areas in degrees (WGS 84).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Geo point in degrees (WGS 84).
// Error messages and the OpenAPI document keep the name `Place`, from which clients generate types.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename = "Place")]
#[schema(as = Place, example = json!({"lat": 52.52, "lon": 13.405}))]
pub struct LatLon {
    /// Latitude, -90 to 90.
    pub lat: f64,
    /// Longitude, -180 to 180.
    pub lon: f64,
}

/// Circle around a geo point. Distances are measured on a sphere of the earth's mean radius.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lat": 52.52, "lon": 13.405, "meters": 5000}))]
pub struct Circle {
    /// Latitude of the center, -90 to 90.
    pub lat: f64,
    /// Longitude of the center, -180 to 180.
    pub lon: f64,
    /// Radius in meters.
    pub meters: f64,
}

/// Area between two latitudes and two longitudes. A box from `west` 170 to `east` -170 is 20 degrees wide.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"south": 52.3, "west": 13.1, "north": 52.7, "east": 13.8}))]
pub struct GeoBox {
    /// Latitude of the southern side.
    pub south: f64,
    /// Longitude of the western side.
    pub west: f64,
    /// Latitude of the northern side.
    pub north: f64,
    /// Longitude of the eastern side.
    pub east: f64,
}

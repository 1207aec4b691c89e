//! Geographic points.

/// Geographic point in degrees (WGS 84).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeoPoint {
    latitude: f64,
    longitude: f64,
}

impl GeoPoint {
    /// Creates a point. Returns `None` if the latitude is outside ±90, the longitude is outside ±180, or one is NaN.
    pub fn new(latitude: f64, longitude: f64) -> Option<Self> {
        let is_place = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
        is_place.then_some(Self { latitude, longitude })
    }

    /// Returns the degrees north of the equator, -90 to 90.
    pub fn latitude(self) -> f64 {
        self.latitude
    }

    /// Returns the degrees east of Greenwich, -180 to 180; both ends are the same meridian.
    pub fn longitude(self) -> f64 {
        self.longitude
    }
}

//! Geo points of a column in a segment.
//!
//! One field holds the latitudes of the points of a row, another field the longitudes, in the same order.

use tantivy::SegmentReader;
use tantivy::columnar::Column;
use tideline_condition::geo::meters_between;
use tideline_model::GeoPoint;

use super::schema::ColumnFields;

/// Returns the names of the fields with the latitudes and longitudes of a column.
pub(super) fn coordinate_fields(name: &str) -> [String; 2] {
    [format!("{name}_lat"), format!("{name}_lon")]
}

/// Coordinates of the geo points of a column in a segment.
pub(super) struct GeoColumn {
    latitudes: Column<f64>,
    longitudes: Column<f64>,
}

impl GeoColumn {
    pub(super) fn open(reader: &SegmentReader, column: &ColumnFields) -> tantivy::Result<Self> {
        let [latitudes, longitudes] = coordinate_fields(&column.name);
        let values = reader.fast_fields();
        Ok(Self {
            latitudes: values.f64(&latitudes)?,
            longitudes: values.f64(&longitudes)?,
        })
    }

    /// Iterates over the points of a document.
    pub(super) fn points(&self, document: u32) -> impl Iterator<Item = GeoPoint> {
        let latitudes = self.latitudes.values_for_doc(document);
        let longitudes = self.longitudes.values_for_doc(document);
        latitudes
            .zip(longitudes)
            .filter_map(|(lat, lon)| GeoPoint::new(lat, lon))
    }

    /// Returns the distance in meters from a point to the nearest point of a document; `None` if it has no points.
    pub(super) fn nearest(&self, document: u32, from: GeoPoint) -> Option<f64> {
        let distances = self.points(document).map(|point| meters_between(from, point));
        distances.min_by(f64::total_cmp)
    }
}

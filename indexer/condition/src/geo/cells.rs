//! Space-filling curve over the globe: nearby points mostly have nearby numbers.
//!
//! Latitude and longitude are quantized to 32 bits each, and their bits are interleaved (Z-order curve). A rectangle
//! is covered by a few ranges of the curve. To find the ranges, the globe is divided into quarters, and each quarter
//! on the border of the rectangle is divided again. The division stops when no cell is on the border or the rectangle
//! has more than `CELLS_MAX` cells.

use tideline_model::GeoPoint;

use super::{ROUNDING, meridian};

/// Number of cells per rectangle above which the division stops. More cells approximate the rectangle more closely,
/// but each costs a dictionary lookup.
const CELLS_MAX: usize = 48;
/// Maximum number of times that the globe is halved in each direction.
const DEPTH: u32 = 32;

/// Rectangle between two parallels and two meridians, with `west` ≤ `east`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rectangle {
    pub(super) south: f64,
    pub(super) north: f64,
    pub(super) west: f64,
    pub(super) east: f64,
}

impl Rectangle {
    /// Creates a rectangle of all longitudes.
    pub(super) fn all_round(south: f64, north: f64) -> Self {
        Self {
            south,
            north,
            west: -180.0,
            east: 180.0,
        }
    }

    /// Creates rectangles from the meridian `west`, which may be beyond ±180 degrees, over `width` degrees eastward.
    /// Adds a rounding margin on both sides.
    pub(super) fn strip(south: f64, north: f64, west: f64, width: f64) -> Vec<Self> {
        let all_round = Self::all_round(south, north);
        let (west, width) = (west - ROUNDING, width + 2.0 * ROUNDING);
        if width >= 360.0 {
            return vec![all_round];
        }
        let west = (west + 180.0).rem_euclid(360.0) - 180.0;
        let east = west + width;
        // The meridian of 180 degrees is represented as -180.
        if east < 180.0 {
            return vec![Self {
                west,
                east,
                ..all_round
            }];
        }
        let beyond = east - 360.0;
        vec![
            Self { west, ..all_round },
            Self {
                east: beyond,
                ..all_round
            },
        ]
    }

    /// Joins rectangles that touch or overlap. All must have the same latitudes.
    pub(super) fn joined(mut rectangles: Vec<Self>) -> Vec<Self> {
        rectangles.sort_by(|one, other| one.west.total_cmp(&other.west));
        let mut joined: Vec<Self> = Vec::new();
        for next in rectangles {
            match joined.last_mut() {
                Some(last) if next.west <= last.east => last.east = last.east.max(next.east),
                _ => joined.push(next),
            }
        }
        joined
    }
}

/// Returns the number of a point on the curve.
pub fn cell_of(point: GeoPoint) -> u64 {
    spread(row(point.latitude())) << 1 | spread(column(meridian(point.longitude())))
}

/// Returns inclusive ranges of the curve that contain all points of the rectangles.
pub fn ranges(rectangles: &[Rectangle]) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = rectangles.iter().flat_map(ranges_of).collect();
    found.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (first, last) in found {
        match merged.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// Cell of the globe: the row and column of its south-western corner, and the number of halvings.
#[derive(Clone, Copy)]
struct Cell {
    row: u64,
    column: u64,
    depth: u32,
}

fn ranges_of(rectangle: &Rectangle) -> Vec<(u64, u64)> {
    let rows = (
        u64::from(row(rectangle.south.max(-90.0))),
        u64::from(row(rectangle.north.min(90.0))),
    );
    let columns = (
        u64::from(column(rectangle.west)),
        u64::from(column(rectangle.east)),
    );
    let globe = Cell {
        row: 0,
        column: 0,
        depth: 0,
    };
    let (mut whole, mut partial) = (Vec::new(), vec![globe]);
    while !partial.is_empty() && whole.len() + partial.len() <= CELLS_MAX {
        let quarters = partial.iter().flat_map(|cell| cell.quarters());
        let mut rest = Vec::new();
        for quarter in quarters {
            let (row_end, column_end) = quarter.ends();
            let is_apart = quarter.row > rows.1
                || row_end < rows.0
                || quarter.column > columns.1
                || column_end < columns.0;
            let is_inside = rows.0 <= quarter.row
                && row_end <= rows.1
                && columns.0 <= quarter.column
                && column_end <= columns.1;
            if is_inside || (quarter.depth == DEPTH && !is_apart) {
                whole.push(quarter);
            } else if !is_apart {
                rest.push(quarter);
            }
        }
        partial = rest;
    }
    whole.iter().chain(&partial).map(Cell::range).collect()
}

impl Cell {
    fn size(&self) -> u64 {
        1 << (DEPTH - self.depth)
    }

    /// Returns the last row and column of the cell.
    fn ends(&self) -> (u64, u64) {
        (self.row + self.size() - 1, self.column + self.size() - 1)
    }

    fn quarters(&self) -> [Self; 4] {
        let half = self.size() / 2;
        [(0, 0), (0, half), (half, 0), (half, half)].map(|(down, right)| Self {
            row: self.row + down,
            column: self.column + right,
            depth: self.depth + 1,
        })
    }

    fn range(&self) -> (u64, u64) {
        let number = |row: u64, column: u64| spread(row as u32) << 1 | spread(column as u32);
        let (row_end, column_end) = self.ends();
        (number(self.row, self.column), number(row_end, column_end))
    }
}

fn row(latitude: f64) -> u32 {
    step((latitude + 90.0) / 180.0)
}

fn column(longitude: f64) -> u32 {
    step((longitude + 180.0) / 360.0)
}

/// Quantizes a fraction from 0 to 1 to 32 bits.
fn step(part: f64) -> u32 {
    // The cast saturates for a fraction of 1.
    (part * (f64::from(u32::MAX) + 1.0)) as u32
}

/// Inserts a zero bit before each bit of a number.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    bits = (bits | bits << 16) & 0x0000_ffff_0000_ffff;
    bits = (bits | bits << 8) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits << 2) & 0x3333_3333_3333_3333;
    (bits | bits << 1) & 0x5555_5555_5555_5555
}

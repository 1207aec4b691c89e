//! Order-preserving keys of 1 to 8 typed columns, for the rows of wide tables.
//!
//! [`KeySchema`] declares the columns. It encodes a tuple of [`KeyValue`]s so that the order of the bytes is the order
//! of the tuples. It also decodes keys, and builds the [`KeyRange`](tideline_model::KeyRange) of a scan. Encoding
//! appends to the caller's buffer and allocates nothing else.
//!
//! ```
//! use tideline_key_codec::tuple::{ColumnOrder, KeyColumn, KeyKind, KeySchema, KeyValue};
//!
//! let schema = KeySchema::new(vec![
//!     KeyColumn { kind: KeyKind::String, order: ColumnOrder::Ascending },
//!     KeyColumn { kind: KeyKind::Signed, order: ColumnOrder::Descending },
//! ])?;
//! let order_of = |customer: &'static str, number: i64| [KeyValue::from(customer), KeyValue::from(number)];
//!
//! let (mut older, mut newer) = (Vec::new(), Vec::new());
//! schema.encode(&order_of("acme", 7), &mut older)?;
//! schema.encode(&order_of("acme", 8), &mut newer)?;
//! assert!(newer < older, "numbers descend");
//! assert_eq!(schema.decode(&older)?, order_of("acme", 7));
//!
//! let below_8 = schema.bounds_range(&[], &["acme".into()], ..KeyValue::from(8_i64))?;
//! assert!(below_8.contains(&older) && !below_8.contains(&newer));
//! # Ok::<(), tideline_key_codec::tuple::KeyError>(())
//! ```
#![doc = include_str!("../FORMAT.md")]

mod decimal;
mod decode;
mod digits;
mod encode;
mod error;
mod escape;
mod range;
mod schema;
mod value;

pub use decimal::{DECIMAL_SCALE_MAX, Decimal};
pub(crate) use decode::split_column;
pub use encode::TUPLE_BYTES_MAX;
pub(crate) use encode::{complement, push_value};
pub use error::{KeyDamage, KeyError};
pub(crate) use escape::{push_escaped, push_escaped_prefix};
pub(crate) use range::{range_within, try_map_bound};
pub use schema::{ColumnOrder, KEY_COLUMNS_MAX, KeyColumn, KeyKind, KeySchema};
pub use value::KeyValue;

#[cfg(test)]
pub(crate) mod tests;

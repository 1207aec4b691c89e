//! Values of key columns.

use std::borrow::Cow;

use tideline_model::Timestamp;

use super::{Decimal, KeyKind};

/// Value of a key column. Strings and binary values are borrowed from the caller or from the decoded key where
/// possible.
///
/// There is no null: every column of a key has a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeyValue<'a> {
    /// Value of a [`KeyKind::String`] column.
    String(Cow<'a, str>),
    /// Value of a [`KeyKind::Signed`] column.
    Signed(i64),
    /// Value of a [`KeyKind::Unsigned`] column.
    Unsigned(u64),
    /// Value of a [`KeyKind::Binary`] column.
    Binary(Cow<'a, [u8]>),
    /// Value of a [`KeyKind::Timestamp`] column.
    Timestamp(Timestamp),
    /// Value of a [`KeyKind::Decimal`] column.
    Decimal(Decimal),
    /// Value of a [`KeyKind::Boolean`] column.
    Boolean(bool),
}

impl KeyValue<'_> {
    /// Returns the value with borrowed text or bytes.
    pub fn borrowed(&self) -> KeyValue<'_> {
        match self {
            Self::String(text) => KeyValue::String(Cow::Borrowed(text)),
            Self::Signed(number) => KeyValue::Signed(*number),
            Self::Unsigned(number) => KeyValue::Unsigned(*number),
            Self::Binary(bytes) => KeyValue::Binary(Cow::Borrowed(bytes)),
            Self::Timestamp(time) => KeyValue::Timestamp(*time),
            Self::Decimal(number) => KeyValue::Decimal(*number),
            Self::Boolean(boolean) => KeyValue::Boolean(*boolean),
        }
    }

    /// Returns the type of the column that holds the value.
    pub const fn kind(&self) -> KeyKind {
        match self {
            Self::String(_) => KeyKind::String,
            Self::Signed(_) => KeyKind::Signed,
            Self::Unsigned(_) => KeyKind::Unsigned,
            Self::Binary(_) => KeyKind::Binary,
            Self::Timestamp(_) => KeyKind::Timestamp,
            Self::Decimal(_) => KeyKind::Decimal,
            Self::Boolean(_) => KeyKind::Boolean,
        }
    }
}

impl<'a> From<&'a str> for KeyValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::String(Cow::Borrowed(text))
    }
}

impl From<i64> for KeyValue<'_> {
    fn from(number: i64) -> Self {
        Self::Signed(number)
    }
}

impl From<u64> for KeyValue<'_> {
    fn from(number: u64) -> Self {
        Self::Unsigned(number)
    }
}

impl<'a> From<&'a [u8]> for KeyValue<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Binary(Cow::Borrowed(bytes))
    }
}

impl From<Timestamp> for KeyValue<'_> {
    fn from(time: Timestamp) -> Self {
        Self::Timestamp(time)
    }
}

impl From<Decimal> for KeyValue<'_> {
    fn from(number: Decimal) -> Self {
        Self::Decimal(number)
    }
}

impl From<bool> for KeyValue<'_> {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

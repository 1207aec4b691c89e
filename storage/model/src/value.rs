//! Values, their types and stored type codes.
//!
//! The codes are part of every storage format, so they are defined in one place.

/// Type of a stored value. Its code is part of every format; codes are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ValueType {
    /// IEEE 754 double, stored bit for bit, including NaN payloads.
    Float = 1,
    /// Signed 64-bit integer.
    Signed = 2,
    /// Unsigned 64-bit integer.
    Unsigned = 3,
    /// `true` or `false`.
    Boolean = 4,
    /// UTF-8 text.
    String = 5,
    /// Native histogram in the stored form of `tideline-histogram`. Storage crates do not decode it.
    Histogram = 8,
}

/// Codes reserved for types of later formats, with their names. Readers of chunks reject these codes with an error that
/// includes the name.
pub const RESERVED_TYPE_CODES: [(u8, &str); 3] = [(6, "binary"), (7, "decimal"), (9, "stale marker")];

/// Group of value types that may share a field. Only the number types share a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// Float, signed and unsigned.
    Number,
    /// Boolean.
    Boolean,
    /// String.
    String,
    /// Native histogram.
    Histogram,
}

impl ValueType {
    /// All types, ordered by code.
    pub const ALL: [Self; 6] = [
        Self::Float,
        Self::Signed,
        Self::Unsigned,
        Self::Boolean,
        Self::String,
        Self::Histogram,
    ];

    /// Returns the stored code.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the type of a stored code; `None` if there is no such type.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the kind, which determines the types that this type may share a field with.
    pub const fn kind(self) -> ValueKind {
        match self {
            Self::Float | Self::Signed | Self::Unsigned => ValueKind::Number,
            Self::Boolean => ValueKind::Boolean,
            Self::String => ValueKind::String,
            Self::Histogram => ValueKind::Histogram,
        }
    }

    /// Returns InfluxDB's name of the type, as in its error messages and `SHOW FIELD KEYS`. InfluxDB has no histograms;
    /// their name is `histogram`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Signed => "integer",
            Self::Unsigned => "unsigned",
            Self::Boolean => "boolean",
            Self::String => "string",
            Self::Histogram => "histogram",
        }
    }
}

/// Typed value.
#[derive(Debug, Clone)]
pub enum Value {
    /// See [`ValueType::Float`].
    Float(f64),
    /// See [`ValueType::Signed`].
    Signed(i64),
    /// See [`ValueType::Unsigned`].
    Unsigned(u64),
    /// See [`ValueType::Boolean`].
    Boolean(bool),
    /// See [`ValueType::String`].
    String(Box<str>),
    /// See [`ValueType::Histogram`].
    Histogram(Box<[u8]>),
}

impl Value {
    /// Returns the type of this value.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::Float(_) => ValueType::Float,
            Self::Signed(_) => ValueType::Signed,
            Self::Unsigned(_) => ValueType::Unsigned,
            Self::Boolean(_) => ValueType::Boolean,
            Self::String(_) => ValueType::String,
            Self::Histogram(_) => ValueType::Histogram,
        }
    }

    /// Returns the heap bytes of a string or histogram; 0 for other types.
    pub fn owned_bytes(&self) -> usize {
        match self {
            Self::Float(_) | Self::Signed(_) | Self::Unsigned(_) | Self::Boolean(_) => 0,
            Self::String(text) => text.len(),
            Self::Histogram(stored) => stored.len(),
        }
    }

    /// Returns the value as a double, for arithmetic; `None` for strings and histograms. Integers beyond 2⁵³ are
    /// rounded; booleans become 0 or 1.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::Float(value) => Some(value),
            Self::Signed(value) => Some(value as f64),
            Self::Unsigned(value) => Some(value as f64),
            Self::Boolean(value) => Some(f64::from(u8::from(value))),
            Self::String(_) | Self::Histogram(_) => None,
        }
    }
}

/// Values are equal if they have the same type and bits. Two NaNs with the same payload are therefore equal, but `0.0`
/// and `-0.0` differ.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Signed(a), Self::Signed(b)) => a == b,
            (Self::Unsigned(a), Self::Unsigned(b)) => a == b,
            (Self::Boolean(a), Self::Boolean(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Histogram(a), Self::Histogram(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

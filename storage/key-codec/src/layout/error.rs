//! Errors of key layouts.
//!
//! [`LayoutError`] describes a request that is refused: declarations, values, or a scan. [`StoredKeyDamage`] describes
//! a stored key that no encoder has written.

use thiserror::Error;
use tideline_model::ColumnType;

use super::{
    BUCKETS_MAX, BUCKETS_MIN, COLUMN_NAME_BYTES_MAX, HASH_DIGITS_MAX, PAD_DIGITS_MAX, SPLICE_COLUMNS_MAX,
    SPLICE_COLUMNS_MIN,
};
use crate::tuple::{KEY_COLUMNS_MAX, KeyDamage, KeyKind, TUPLE_BYTES_MAX};

/// Refused declaration, value or scan. Columns are given by name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// No column is declared, or more than [`KEY_COLUMNS_MAX`].
    #[error("the key has {actual} columns; declare 1 to {KEY_COLUMNS_MAX}")]
    ColumnCount {
        /// Number of declared columns.
        actual: usize,
    },
    /// A column name does not match `[A-Za-z_][A-Za-z0-9_]{0,254}`.
    #[error(
        "key column name {name:?} is not valid: use a letter or `_`, then letters, digits and `_`, at most {COLUMN_NAME_BYTES_MAX} bytes"
    )]
    InvalidName {
        /// Refused name.
        name: String,
    },
    /// Two columns have the same name.
    #[error("two key columns have the name `{name}`; names are unique over logical and computed columns")]
    DuplicateName {
        /// Refused name.
        name: String,
    },
    /// Keys cannot hold values of the type.
    #[error(
        "key column `{column}` has type {actual}, which keys cannot hold; use string, i64, u64, bool, binary, decimal or timestamp"
    )]
    TypeNotInKeys {
        /// Name of the column.
        column: String,
        /// Type of the column.
        actual: ColumnType,
    },
    /// More than one column is generated.
    #[error(
        "key columns `{first}` and `{second}` are both generated; a key has at most one generated column"
    )]
    SecondGenerated {
        /// Name of the first generated column.
        first: String,
        /// Name of the second generated column.
        second: String,
    },
    /// The first stored column rises with time.
    #[error(
        "the first key column `{column}` rises with time, so all writes go to one end of the order; put a column that spreads writes before it, or begin the key with a `hash_prefix`, or begin the key with a `bucket`; `allow_rising_key` accepts it as it is"
    )]
    RisingKey {
        /// Name of the first stored column, which is a timestamp or generated.
        column: String,
    },
    /// A hash prefix or bucket has an empty list of columns.
    #[error("key column `{column}` hashes no column; list logical columns of the key in `of`")]
    NothingHashed {
        /// Name of the hash prefix or bucket.
        column: String,
    },
    /// A hash prefix or bucket refers to a column that is not a logical column of the key.
    #[error("key column `{column}` hashes `{of}`, which is not a logical column of the key; it has {known}")]
    UnknownHashed {
        /// Name of the hash prefix or bucket.
        column: String,
        /// Unknown name.
        of: String,
        /// Names of the logical columns.
        known: String,
    },
    /// A hash prefix or bucket lists a column twice.
    #[error("key column `{column}` hashes `{of}` twice; list it once")]
    HashedTwice {
        /// Name of the hash prefix or bucket.
        column: String,
        /// Repeated name.
        of: String,
    },
    /// The number of digits of a hash prefix is out of range.
    #[error("hash prefix `{column}` has {actual} digits; `hex` is 1 to {HASH_DIGITS_MAX}")]
    HashDigits {
        /// Name of the hash prefix.
        column: String,
        /// Number of digits.
        actual: u8,
    },
    /// The number of buckets is out of range.
    #[error("key column `{column}` has {actual} buckets; `count` is {BUCKETS_MIN} to {BUCKETS_MAX}")]
    BucketCount {
        /// Name of the bucket.
        column: String,
        /// Number of buckets.
        actual: u16,
    },
    /// A bucket is not the first stored column.
    #[error("bucket `{column}` is key column {position}; a bucket spreads rows only as the first key column")]
    BucketNotFirst {
        /// Name of the bucket.
        column: String,
        /// Position of the bucket among the stored columns, counted from 1.
        position: usize,
    },
    /// The last stored column is a hash prefix or bucket.
    #[error(
        "key column `{column}` is the last one, where its hash changes nothing; put it before the columns that it hashes"
    )]
    HashLast {
        /// Name of the hash prefix or bucket.
        column: String,
    },
    /// The type of the reversed column is not `string`, `i64` or `u64`.
    #[error("`{column}` is reversed and has type {actual}; reverse a column of type string, i64 or u64")]
    ReverseType {
        /// Name of the logical column.
        column: String,
        /// Type of the column.
        actual: ColumnType,
    },
    /// The number of columns of a splice is out of range.
    #[error(
        "splice `{column}` has {actual} columns; list {SPLICE_COLUMNS_MIN} to {SPLICE_COLUMNS_MAX}, or use a plain column for one value"
    )]
    SpliceCount {
        /// Name of the splice.
        column: String,
        /// Number of columns.
        actual: usize,
    },
    /// The type of a spliced column is not `string`, `i64` or `u64`.
    #[error("`{column}` is spliced and has type {actual}; splice columns of type string, i64 or u64")]
    SpliceType {
        /// Name of the logical column.
        column: String,
        /// Type of the column.
        actual: ColumnType,
    },
    /// A spliced integer has no width.
    #[error(
        "`{column}` is a spliced integer without `pad`; give the digits of its largest value, 1 to {PAD_DIGITS_MAX}"
    )]
    PadMissing {
        /// Name of the logical column.
        column: String,
    },
    /// The width of a spliced integer is out of range.
    #[error("`{column}` is padded to {actual} digits; `pad` is 1 to {PAD_DIGITS_MAX}")]
    PadDigits {
        /// Name of the logical column.
        column: String,
        /// Number of digits.
        actual: u8,
    },
    /// A spliced string has a width.
    #[error("`{column}` is a spliced string with `pad`; only integers are padded, so omit it")]
    PadOfString {
        /// Name of the logical column.
        column: String,
    },
    /// The delimiter of a splice is not an ASCII character.
    #[error("splice `{column}` has the delimiter {actual:?}; use one ASCII character, such as `,`")]
    DelimiterNotAscii {
        /// Name of the splice.
        column: String,
        /// Delimiter of the splice.
        actual: char,
    },
    /// The delimiter of a splice with integers does not sort before the digits.
    #[error(
        "splice `{column}` has integers and the delimiter {actual:?}; use one that sorts before `0`, such as `,`"
    )]
    DelimiterNotBelowDigits {
        /// Name of the splice.
        column: String,
        /// Delimiter of the splice.
        actual: char,
    },

    /// The number of values of a key is not the number of logical columns of the table.
    #[error("the key has {actual} values, the table has {expected} key columns; give one value per column")]
    ValueCount {
        /// Number of logical columns.
        expected: usize,
        /// Number of values.
        actual: usize,
    },
    /// The type of a value is not the type of its column.
    #[error("key column `{column}` has type {expected}; the value has type {actual}")]
    WrongKind {
        /// Name of the column.
        column: String,
        /// Type of the column.
        expected: KeyKind,
        /// Type of the value.
        actual: KeyKind,
    },
    /// A number that is stored as text is negative.
    #[error(
        "key column `{column}` is stored as text and cannot hold the negative number {actual}; use 0 or more"
    )]
    NegativeNumber {
        /// Name of the column.
        column: String,
        /// Refused number.
        actual: i64,
    },
    /// A number has more digits than its column.
    #[error("key column `{column}` holds numbers of at most {limit} digits; {actual} has more")]
    NumberTooLong {
        /// Name of the column.
        column: String,
        /// Number of digits of the column.
        limit: u8,
        /// Refused number.
        actual: u64,
    },
    /// A spliced text contains the delimiter of the splice or a character that sorts before it.
    #[error(
        "key column `{column}` is joined with others by {delimiter:?}; its text must not contain {found:?}, which does not sort after the delimiter"
    )]
    SplicedCharacter {
        /// Name of the column.
        column: String,
        /// Delimiter of the splice.
        delimiter: char,
        /// Refused character.
        found: char,
    },
    /// The encoded key exceeds [`TUPLE_BYTES_MAX`].
    #[error("the key has {actual} encoded bytes, over the limit of {TUPLE_BYTES_MAX}; shorten the values")]
    TooLong {
        /// Number of encoded bytes.
        actual: usize,
    },

    /// A prefix has more values, or a product more lists, than the table has logical columns.
    #[error("the key prefix has {actual} values, the table has {limit} key columns; omit the others")]
    PrefixCount {
        /// Number of logical columns.
        limit: usize,
        /// Number of values.
        actual: usize,
    },
    /// The prefix holds all columns, so no column is left for the bounds.
    #[error("bounds apply to the column after the key prefix, and the prefix holds all {limit} key columns")]
    BoundsAfterLastColumn {
        /// Number of logical columns.
        limit: usize,
    },
    /// Values or bounds follow a hash prefix in the key, and the scan's prefix lacks values for some of the columns
    /// that the hash prefix hashes.
    #[error(
        "key column `{column}` cannot restrict the scan: rows are stored by `{hash}`, a hash that needs the value of `{missing}`; give all hashed columns by equality, or create a secondary index on `{column}`, or use a table whose key begins with a bucket instead of the hash prefix"
    )]
    BehindHash {
        /// Name of the column that the scan restricts.
        column: String,
        /// Name of the hash prefix.
        hash: String,
        /// Name of the first hashed column without a value.
        missing: String,
    },
    /// Bounds apply to a reversed column.
    #[error(
        "key column `{column}` is stored reversed, so a range of its values is not a range of the table; give one value, or create a secondary index on `{column}`"
    )]
    ReversedRange {
        /// Name of the column.
        column: String,
    },
    /// A value or bound restricts a column, but a column before it has no value.
    #[error(
        "key column `{column}` cannot restrict the scan without a value of `{missing}`, which precedes it in the key; add an equality on `{missing}`, or create a secondary index on `{column}`"
    )]
    MissingColumn {
        /// Name of the column that the scan restricts.
        column: String,
        /// Name of the first preceding column without a value.
        missing: String,
    },
    /// A name is not a logical column of the key.
    #[error("`{column}` is not a key column; the key has {known}")]
    UnknownColumn {
        /// Refused name.
        column: String,
        /// Names of the logical columns.
        known: String,
    },
    /// A column is given twice.
    #[error("key column `{column}` is given twice; give one value, or one pair of bounds")]
    ColumnTwice {
        /// Name of the column.
        column: String,
    },
    /// Lists of values select too many keys.
    #[error(
        "lists of {} values select {} keys, over the limit of {limit}; shorten a list, or split the request",
        factors_text(.factors),
        product_text(*.actual)
    )]
    ProductTooLarge {
        /// Length of each list, without repeated values.
        factors: Vec<usize>,
        /// Number of keys; `None` if it exceeds 64 bits.
        actual: Option<u64>,
        /// Maximum number of keys.
        limit: u64,
    },
}

/// Stored key that the encoder of the layout does not write.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoredKeyDamage {
    /// The bytes of a column are not a value of its type.
    #[error("a stored key is damaged in column `{column}`: {damage}")]
    Column {
        /// Name of the stored column.
        column: String,
        /// Kind of damage.
        damage: KeyDamage,
    },
    /// The text of a reversed or spliced column is not composed of values of its logical columns.
    #[error("a stored key is damaged in column `{column}`: {found:?} is not a text of its columns")]
    Text {
        /// Name of the stored column.
        column: String,
        /// Stored text.
        found: String,
    },
    /// A hash prefix or bucket does not match the hash of the columns that it is computed from.
    #[error(
        "a stored key is damaged in column `{column}`: it holds {found}, the hash of its columns is {expected}"
    )]
    Hash {
        /// Name of the stored column.
        column: String,
        /// Digits or bucket computed from the other columns of the key.
        expected: String,
        /// Digits or bucket in the key.
        found: String,
    },
    /// The key exceeds [`TUPLE_BYTES_MAX`].
    #[error("a stored key is damaged: it has {actual} bytes, over the limit of {TUPLE_BYTES_MAX}")]
    TooLong {
        /// Number of bytes.
        actual: usize,
    },
    /// Bytes follow the last column.
    #[error("a stored key is damaged: {bytes} bytes follow its last column")]
    TrailingBytes {
        /// Number of bytes after the last column.
        bytes: usize,
    },
}

fn factors_text(factors: &[usize]) -> String {
    let factors: Vec<String> = factors.iter().map(ToString::to_string).collect();
    factors.join(" × ")
}

fn product_text(product: Option<u64>) -> String {
    product.map_or_else(
        || format!("more than {}", u64::MAX),
        |product| product.to_string(),
    )
}

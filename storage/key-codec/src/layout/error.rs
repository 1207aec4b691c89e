//! Errors of key layouts.
//!
//! [`LayoutError`] describes a request that is refused: declarations, values, or a scan. [`StoredKeyDamage`] describes a
//! stored key that no encoder has written.

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
    /// The name of a column has a wrong form.
    #[error(
        "key column name {name:?} is not valid: use a letter or `_`, then letters, digits and `_`, at most {COLUMN_NAME_BYTES_MAX} bytes"
    )]
    InvalidName {
        /// The name.
        name: String,
    },
    /// Two columns have one name.
    #[error("two key columns have the name `{name}`; names are unique over logical and computed columns")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// Keys cannot hold values of the type.
    #[error(
        "key column `{column}` has type {actual}, which keys cannot hold; use string, i64, u64, bool, binary, decimal or timestamp"
    )]
    TypeNotInKeys {
        /// The column.
        column: String,
        /// Its type.
        actual: ColumnType,
    },
    /// A second column is generated.
    #[error(
        "key columns `{first}` and `{second}` are both generated; a key has at most one generated column"
    )]
    SecondGenerated {
        /// The first generated column.
        first: String,
        /// The second generated column.
        second: String,
    },
    /// The first stored column rises with time.
    #[error(
        "the first key column `{column}` rises with time, so all writes go to one place of the table; put a column that spreads writes before it, or begin the key with a `hash_prefix`, or begin the key with a `bucket`; `allow_rising_key` accepts it as it is"
    )]
    RisingKey {
        /// The first stored column: a timestamp or generated.
        column: String,
    },
    /// A hash prefix or bucket has an empty list of columns.
    #[error("key column `{column}` hashes no column; list logical columns of the key in `of`")]
    NothingHashed {
        /// The hash prefix or bucket.
        column: String,
    },
    /// A hash prefix or bucket refers to a column that is not a logical column of the key.
    #[error("key column `{column}` hashes `{of}`, which is not a logical column of the key; it has {known}")]
    UnknownHashed {
        /// The hash prefix or bucket.
        column: String,
        /// The unknown name.
        of: String,
        /// Names of the logical columns.
        known: String,
    },
    /// A hash prefix or bucket lists a column twice.
    #[error("key column `{column}` hashes `{of}` twice; list it once")]
    HashedTwice {
        /// The hash prefix or bucket.
        column: String,
        /// The repeated name.
        of: String,
    },
    /// The number of digits of a hash prefix is out of range.
    #[error("hash prefix `{column}` has {actual} digits; `hex` is 1 to {HASH_DIGITS_MAX}")]
    HashDigits {
        /// The hash prefix.
        column: String,
        /// Number of digits.
        actual: u8,
    },
    /// The number of buckets is out of range.
    #[error("key column `{column}` has {actual} buckets; `count` is {BUCKETS_MIN} to {BUCKETS_MAX}")]
    BucketCount {
        /// The bucket.
        column: String,
        /// Number of buckets.
        actual: u16,
    },
    /// A bucket is not the first stored column.
    #[error("bucket `{column}` is key column {place}; a bucket spreads rows only as the first key column")]
    BucketNotFirst {
        /// The bucket.
        column: String,
        /// Its place, counted from 1.
        place: usize,
    },
    /// The last stored column is a hash prefix or bucket.
    #[error(
        "key column `{column}` is the last one, where its hash changes nothing; put it before the columns that it hashes"
    )]
    HashLast {
        /// The hash prefix or bucket.
        column: String,
    },
    /// The reversed column has another type than `string`, `i64` or `u64`.
    #[error("`{column}` is reversed and has type {actual}; reverse a column of type string, i64 or u64")]
    ReverseType {
        /// The logical column.
        column: String,
        /// Its type.
        actual: ColumnType,
    },
    /// The number of columns of a splice is out of range.
    #[error(
        "splice `{column}` has {actual} columns; list {SPLICE_COLUMNS_MIN} to {SPLICE_COLUMNS_MAX}, or use a plain column for one value"
    )]
    SpliceCount {
        /// The splice.
        column: String,
        /// Number of columns.
        actual: usize,
    },
    /// A spliced column has another type than `string`, `i64` or `u64`.
    #[error("`{column}` is spliced and has type {actual}; splice columns of type string, i64 or u64")]
    SpliceType {
        /// The logical column.
        column: String,
        /// Its type.
        actual: ColumnType,
    },
    /// A spliced integer has no width.
    #[error(
        "`{column}` is a spliced integer without `pad`; give the digits of its largest value, 1 to {PAD_DIGITS_MAX}"
    )]
    PadMissing {
        /// The logical column.
        column: String,
    },
    /// The width of a spliced integer is out of range.
    #[error("`{column}` is padded to {actual} digits; `pad` is 1 to {PAD_DIGITS_MAX}")]
    PadDigits {
        /// The logical column.
        column: String,
        /// Number of digits.
        actual: u8,
    },
    /// A spliced string has a width.
    #[error("`{column}` is a spliced string with `pad`; only integers are padded, so omit it")]
    PadOfString {
        /// The logical column.
        column: String,
    },
    /// The delimiter of a splice is not an ASCII character.
    #[error("splice `{column}` has the delimiter {actual:?}; use one ASCII character, such as `,`")]
    DelimiterNotAscii {
        /// The splice.
        column: String,
        /// The delimiter.
        actual: char,
    },
    /// The delimiter of a splice with integers does not sort before the digits.
    #[error(
        "splice `{column}` has integers and the delimiter {actual:?}; use one that sorts before `0`, such as `,`"
    )]
    DelimiterNotBelowDigits {
        /// The splice.
        column: String,
        /// The delimiter.
        actual: char,
    },

    /// A key has another number of values than the table has logical columns.
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
        /// The column.
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
        /// The column.
        column: String,
        /// The number.
        actual: i64,
    },
    /// A number has more digits than its column.
    #[error("key column `{column}` holds numbers of at most {limit} digits; {actual} has more")]
    NumberTooLong {
        /// The column.
        column: String,
        /// Number of digits of the column.
        limit: u8,
        /// The number.
        actual: u64,
    },
    /// A spliced text contains the delimiter of the splice or a character that sorts before it.
    #[error(
        "key column `{column}` is joined with others by {delimiter:?}; its text must not contain {found:?}, which does not sort after the delimiter"
    )]
    SplicedCharacter {
        /// The column.
        column: String,
        /// The delimiter.
        delimiter: char,
        /// The refused character.
        found: char,
    },
    /// The encoded key exceeds [`TUPLE_BYTES_MAX`].
    #[error("the key has {actual} encoded bytes, over the limit of {TUPLE_BYTES_MAX}; shorten the values")]
    TooLong {
        /// Number of encoded bytes.
        actual: usize,
    },

    /// A prefix has more values than the table has logical columns.
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
    /// The values cannot be used because a hash precedes them, and the prefix does not fix all hashed columns.
    #[error(
        "key column `{column}` cannot restrict the scan: rows are stored by `{hash}`, a hash that needs the value of `{missing}`; give all hashed columns by equality, or create a secondary index on `{column}`, or use a table whose key begins with a bucket instead of the hash prefix"
    )]
    BehindHash {
        /// The column that was to be restricted.
        column: String,
        /// The hash prefix.
        hash: String,
        /// First hashed column without a value.
        missing: String,
    },
    /// Bounds apply to a reversed column.
    #[error(
        "key column `{column}` is stored reversed, so a range of its values is not a range of the table; give one value, or create a secondary index on `{column}`"
    )]
    ReversedRange {
        /// The column.
        column: String,
    },
    /// A condition restricts a column, but a column before it has no value.
    #[error(
        "key column `{column}` cannot restrict the scan without a value of `{missing}`, which precedes it in the key; add an equality on `{missing}`, or create a secondary index on `{column}`"
    )]
    MissingColumn {
        /// The column that was to be restricted.
        column: String,
        /// First column before it without a value.
        missing: String,
    },
    /// A name is not a logical column of the key.
    #[error("`{column}` is not a key column; the key has {known}")]
    UnknownColumn {
        /// The name.
        column: String,
        /// Names of the logical columns.
        known: String,
    },
    /// A column is given twice.
    #[error("key column `{column}` is given twice; give one value, or one pair of bounds")]
    ColumnTwice {
        /// The column.
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
        /// The stored column.
        column: String,
        /// Kind of damage.
        damage: KeyDamage,
    },
    /// The text of a reversed or spliced column is not composed of values of its logical columns.
    #[error("a stored key is damaged in column `{column}`: {found:?} is not a text of its columns")]
    Text {
        /// The stored column.
        column: String,
        /// The text.
        found: String,
    },
    /// A hash prefix or bucket is not the hash of the other columns.
    #[error(
        "a stored key is damaged in column `{column}`: it holds {found}, the hash of its columns is {expected}"
    )]
    Hash {
        /// The stored column.
        column: String,
        /// Digits or bucket that the other columns have.
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

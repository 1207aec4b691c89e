//! Settings of wide tables: key columns with their modifiers, declared columns, versions, time-to-live, secondary
//! indexes and search indexes. The module [`parts`](crate::parts) holds the settings of parts.
//!
//! The *logical* columns of a key are the columns that users write and read. Rows are ordered by the *stored* columns.
//! A stored column is either a logical column, or computed from logical columns as declared by a [`KeySource`]. Rows
//! that users write and read have no computed columns.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::parts::{PartsSpec, TierScope};

/// Type of a column of a wide table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    /// UTF-8 text.
    String,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// IEEE 754 double. Keys cannot hold this type.
    F64,
    /// `true` or `false`.
    Bool,
    /// Bytes.
    Binary,
    /// Exact decimal number with a mantissa of 128 bits and 0 to 38 digits after the point.
    Decimal,
    /// JSON document. Keys cannot hold this type.
    Json,
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    Timestamp,
}

impl ColumnType {
    /// All types.
    pub const ALL: [Self; 9] = [
        Self::String,
        Self::I64,
        Self::U64,
        Self::F64,
        Self::Bool,
        Self::Binary,
        Self::Decimal,
        Self::Json,
        Self::Timestamp,
    ];

    /// Returns the name used in requests, responses and stored settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F64 => "f64",
            Self::Bool => "bool",
            Self::Binary => "binary",
            Self::Decimal => "decimal",
            Self::Json => "json",
            Self::Timestamp => "timestamp",
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Order of the values of a stored key column in a forward scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum KeyOrder {
    /// Smallest value first.
    #[default]
    #[serde(rename = "asc")]
    Ascending,
    /// Largest value first.
    #[serde(rename = "desc")]
    Descending,
}

/// Stored column of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyColumnSpec {
    /// Name, unique among all logical and computed columns of the key.
    pub name: String,
    /// Origin of the values.
    #[serde(flatten)]
    pub source: KeySource,
    /// Order of the values.
    #[serde(default, skip_serializing_if = "is_ascending")]
    pub order: KeyOrder,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn is_ascending(order: &KeyOrder) -> bool {
    *order == KeyOrder::Ascending
}

/// Origin of the values of a stored key column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// Logical column: the value is given by the writer.
    Type(ColumnType),
    /// Logical column of type `i64`: strictly increasing ids, assigned by the server. In the operation `put`, the value
    /// is optional, and must be missing if the write requires that the row does not exist.
    Generated(Generated),
    /// First digits of the MD5 of other logical columns, in lower-case hexadecimal: spreads load over `16^hex` ranges.
    /// Cannot be the last stored column.
    HashPrefix(HashPrefix),
    /// Number from 0 to `count` − 1, chosen by the hash of other logical columns: spreads load, and ordered scans merge
    /// the buckets. Can only be the first stored column.
    Bucket(Bucket),
    /// Text of a logical column with its characters in reverse order.
    Reverse(Reverse),
    /// Texts of several logical columns, joined by a delimiter.
    Splice(Splice),
}

/// Parameters of [`KeySource::Generated`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generated {}

/// Parameters of [`KeySource::HashPrefix`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashPrefix {
    /// Names of the logical columns that are hashed.
    pub of: Vec<String>,
    /// Number of hexadecimal digits, 1 to 8.
    pub hex: u8,
}

/// Parameters of [`KeySource::Bucket`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Names of the logical columns that are hashed.
    pub of: Vec<String>,
    /// Number of buckets, 2 to 256.
    pub count: u16,
}

/// Parameters of [`KeySource::Reverse`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reverse {
    /// The logical column: `string`, `i64` or `u64`. Integers are stored with all digits of the type; negative numbers
    /// are refused.
    pub of: LogicalColumn,
}

/// Parameters of [`KeySource::Splice`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Splice {
    /// The logical columns, 2 to 8, of type `string`, `i64` or `u64`.
    pub columns: Vec<SplicedColumn>,
    /// Delimiter between the texts: one ASCII character that sorts before every character of the texts, and before `0`
    /// if integers are spliced. Default `,`.
    #[serde(default = "default_delimiter")]
    pub delimiter: char,
}

fn default_delimiter() -> char {
    ','
}

/// Logical column that a modifier stores in another form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogicalColumn {
    /// Name of the column.
    pub name: String,
    /// Type of the values.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
}

/// Logical column within a splice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplicedColumn {
    /// Name of the column.
    pub name: String,
    /// Type of the values.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// Number of digits to which an integer is padded with zeros, 1 to 20. With padding, the order of the texts is the
    /// order of the numbers. Negative and longer numbers are refused. Required for integers; `None` for strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pad: Option<u8>,
}

/// Declared column of the rows, or a pattern for many columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSpec {
    /// Name, or a pattern in which `*` matches any characters and `?` matches exactly one.
    pub name: String,
    /// Type of the values.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// Number of the column in stored rows; assigned by the server and never reused. The number is 0 for a pattern, and
    /// for a column that was declared after the table was created. Rows store columns with number 0 by name.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub number: u32,
    /// Compression of the values in packed rows and in pieces.
    #[serde(default, skip_serializing_if = "ColumnCompression::is_auto")]
    pub compression: ColumnCompression,
}

/// Compression of the texts, bytes and JSON documents of a column, in packed rows and in the pieces of large values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnCompression {
    /// The values are compressed together with the other columns of the packed rows.
    #[default]
    Auto,
    /// The values are stored as they are, apart from the other columns of a block.
    None,
    /// LZ4, apart from the other columns of a block: more bytes than `Auto`, but decompressed faster.
    Lz4,
    /// zstd at a higher level with a dictionary of the texts of the part, apart from the other columns of a block:
    /// fewer bytes, but more CPU time when rows are packed.
    Zstd,
}

impl ColumnCompression {
    /// All values.
    pub const ALL: [Self; 4] = [Self::Auto, Self::None, Self::Lz4, Self::Zstd];

    /// Returns the name used in requests, responses and stored settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the compression with a name; `None` for an unknown name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|compression| compression.name() == name)
    }

    /// Returns true if the values are compressed together with the other columns.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl ColumnSpec {
    /// Returns true if the name is a pattern.
    pub fn is_pattern(&self) -> bool {
        self.name.contains(['*', '?'])
    }

    /// Returns the beginning of the names that a pattern like `x*` matches; `None` for a name and for other patterns.
    pub fn prefix(&self) -> Option<&str> {
        let start = self.name.strip_suffix('*')?;
        (!start.contains(['*', '?'])).then_some(start)
    }
}

/// Settings of a wide table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WideSpec {
    /// Stored key columns, 1 to 8, in the order in which rows are sorted. They cannot be changed after the table is
    /// created.
    pub key: Vec<KeyColumnSpec>,
    /// Declared columns. Other columns may be written too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnSpec>,
    /// Number that the next numbered column gets, at least 1.
    #[serde(default = "first_number")]
    pub next_column: u32,
    /// Maximum number of versions that are kept per column, 1 to 1,000.
    #[serde(default = "one_version")]
    pub max_versions: u32,
    /// Maximum distance in nanoseconds between the current time and a version given by a client; `None` = unlimited.
    #[serde(default = "default_guard")]
    pub version_guard: Option<i64>,
    /// True to accept a first key column that increases with time, although all writes then go to the end of the table.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_rising_key: bool,
    /// Secondary indexes, in the order of their creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexSpec>,
    /// Time after which data expires; `None` = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<RowTtl>,
    /// Unit of the last `ttl`, while the table has none; `Row` while it has one. The entries and documents of indexes
    /// depend on the unit, so a later `ttl` keeps it.
    #[serde(default, skip_serializing_if = "TtlScope::is_row")]
    pub ttl_of: TtlScope,
    /// Division into parts by time; `None` = all rows are in one part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<PartsSpec>,
    /// Search indexes, in the order of their creation. While an index is rebuilt, the list holds two indexes with its
    /// name: the first serves searches until the second is built and replaces the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search_indexes: Vec<SearchIndexSpec>,
    /// Id under which the pieces of large values are stored, from the number range of tables. `None` until the table
    /// gets its first large value; 0 until the id is assigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub large_values: Option<u32>,
    /// True if ordinary writes have stored large values of the table in pieces, so that rows reference them. Set by the
    /// first such write, and never reset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_values: bool,
    /// True if a column has or had a separate compression, so that blocks and pieces can contain values compressed in
    /// this way. Set when a column first has such a compression, and never reset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub codecs: bool,
    /// Limits of the rates at which rows are read and written: at most one for the table, and one per age of parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<RowLimit>,
    /// Groups of columns that are stored apart from the other columns. They cannot be changed after the table is
    /// created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ColumnGroupSpec>,
}

/// Bytes of a row that count once against a [`RowLimit`]. The size of a row is rounded up to whole units.
pub const LIMIT_UNIT_BYTES: u64 = 4 << 10;

/// Limit of the rates at which rows are read and written. A row counts against the limit of the table, and against the
/// limit of the highest age that its part has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowLimit {
    /// Minimum time in nanoseconds between the end of a part and now; `None` = the whole table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than: Option<i64>,
    /// Maximum number of reads per second, in units of [`LIMIT_UNIT_BYTES`]; `None` = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_per_second: Option<u64>,
    /// Maximum number of writes per second, in units of [`LIMIT_UNIT_BYTES`]; `None` = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_per_second: Option<u64>,
}

/// Group of columns that are stored apart from the other columns of their rows, under the same keys. A change of other
/// columns does not write the group, and a read of other columns does not read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnGroupSpec {
    /// Id under which the columns are stored, from the number range of tables. 0 until the table is created.
    #[serde(default)]
    pub id: u32,
    /// Name, unique within the table.
    pub name: String,
    /// Names of the columns. A name that ends with `*` selects all columns whose names begin with the text before the
    /// `*`.
    pub columns: Vec<String>,
    /// Compression of the packed columns.
    #[serde(default, skip_serializing_if = "GroupCompression::is_default")]
    pub compression: GroupCompression,
}

/// Compression of the packed columns of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupCompression {
    /// Small blocks that are compressed and decompressed fast, like those of other columns.
    #[default]
    Fast,
    /// Large blocks with stronger compression: fewer bytes, but flushes and reads of single rows take more CPU time.
    Dense,
}

impl GroupCompression {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Fast, Self::Dense];

    /// Returns the name used in requests, responses and stored settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Dense => "dense",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl ColumnGroupSpec {
    /// Returns true if the group stores a column.
    pub fn holds(&self, column: &str) -> bool {
        let is_named = |name: &String| match name.strip_suffix('*') {
            Some(start) => column.starts_with(start),
            None => column == name,
        };
        self.columns.iter().any(is_named)
    }
}

impl WideSpec {
    /// Returns the position of the group that stores a column: the first group that holds its name. `None` for a column
    /// that is stored with the row.
    pub fn group_of(&self, column: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.holds(column))
    }

    /// Returns the unit in which data expires. A table without `ttl` has the unit of its last `ttl`.
    pub fn ttl_scope(&self) -> TtlScope {
        self.ttl.map_or(self.ttl_of, |ttl| ttl.of)
    }

    /// Returns true if versions of columns expire one by one, or will do so once the table has a `ttl` again.
    pub fn cells_expire(&self) -> bool {
        self.ttl_scope() == TtlScope::Cell
    }

    /// Changes the time in nanoseconds after which data expires; `None` = never. The unit stays the same.
    pub fn set_ttl(&mut self, after: Option<i64>) {
        let of = self.ttl_scope();
        self.ttl = after.map(|after| RowTtl { after, of });
        self.ttl_of = match after {
            Some(_) => TtlScope::default(),
            None => of,
        };
    }

    /// Returns true if an index of either kind covers only some of the tiers.
    pub fn has_tiered_indexes(&self) -> bool {
        let entries = self.indexes.iter().map(|index| index.tier);
        let documents = self.search_indexes.iter().map(|index| index.tier);
        entries.chain(documents).any(|tier| !tier.is_all())
    }

    /// Returns true if a search index has several shards.
    pub fn has_shards(&self) -> bool {
        self.search_indexes.iter().any(|index| index.shards > 1)
    }
}

/// Time-to-live of the data of a wide table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowTtl {
    /// Time in nanoseconds between a write and its expiry, at least 1.
    pub after: i64,
    /// Data that expires together.
    #[serde(default)]
    pub of: TtlScope,
}

/// Data that expires together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TtlScope {
    /// A row with all its columns; the time counts from the last write of the row.
    #[default]
    Row,
    /// Each version of a column, and also the row as a whole. A version expires by its own timestamp, a row by the time
    /// of its last write.
    Cell,
}

impl TtlScope {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
    fn is_row(&self) -> bool {
        *self == Self::Row
    }
}

/// Secondary index of a wide table: a second order of its rows, maintained with every write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexSpec {
    /// Id under which the entries are stored, from the number range of tables. 0 until the index is created.
    #[serde(default)]
    pub id: u32,
    /// Name, unique within the table.
    pub name: String,
    /// Stored columns of the index key. Their logical columns are declared columns of the rows and columns of the
    /// primary key. Entries are sorted by these columns, and then by the remaining columns of the primary key.
    pub key: Vec<KeyColumnSpec>,
    /// Columns that entries hold in addition to their key, so that reads of these columns need not read the row.
    #[serde(default)]
    pub covers: IndexCover,
    /// Scope of the order.
    #[serde(default)]
    pub scope: IndexScope,
    /// True to accept a first column that rises with time, although all new entries then go to the end of the order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_rising_key: bool,
    /// Tiers of the parts whose rows have entries.
    #[serde(default, skip_serializing_if = "TierScope::is_all")]
    pub tier: TierScope,
    /// State of the entries.
    #[serde(default)]
    pub state: IndexState,
}

/// Columns that the entries of an index hold in addition to their key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IndexCover {
    /// All columns of the row.
    All,
    /// The named columns.
    Columns(Vec<String>),
}

impl Default for IndexCover {
    fn default() -> Self {
        Self::Columns(Vec::new())
    }
}

/// Scope of the order of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IndexScope {
    /// All rows of the table in one order.
    #[default]
    Global,
    /// The rows of each partition in a separate order. Entries begin with the stored columns that determine the
    /// partition.
    Local,
}

/// State of the entries of an index.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IndexState {
    /// A job adds the rows that are older than the index. Reads by the index are refused, but writes already maintain
    /// it.
    Building {
        /// Stored key, in hexadecimal, at which the build continues; empty at the beginning.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        next: String,
    },
    /// Every row has its entry.
    #[default]
    Ready,
}

impl IndexSpec {
    /// Returns true if every row has its entry.
    pub fn is_ready(&self) -> bool {
        self.state == IndexState::Ready
    }
}

/// Search index of a wide table, for searches by any combination of conditions on its columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchIndexSpec {
    /// Id of the index, from the number range of tables. 0 until the index is created.
    #[serde(default)]
    pub id: u32,
    /// Name, unique within the table.
    pub name: String,
    /// Indexed columns: columns of the rows that are declared by name or by a pattern, and logical columns of the key.
    pub columns: Vec<SearchColumnSpec>,
    /// Tiers of the parts whose rows have documents.
    #[serde(default, skip_serializing_if = "TierScope::is_all")]
    pub tier: TierScope,
    /// Number of shards over which the rows are divided; at least 1.
    #[serde(default = "one_shard", skip_serializing_if = "is_one_shard")]
    pub shards: u16,
    /// Logical columns of the key whose values determine the shard of a row. Empty if the index has one shard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routing: Vec<String>,
}

/// Column of a search index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchColumnSpec {
    /// Name of the column.
    pub column: String,
    /// Form in which the values are indexed.
    #[serde(rename = "as")]
    pub form: SearchForm,
    /// Analyzer of the words; only for [`SearchForm::Text`].
    #[serde(default, skip_serializing_if = "SearchAnalyzer::is_default")]
    pub analyzer: SearchAnalyzer,
}

/// Way in which texts are split into the words that a search compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchAnalyzer {
    /// Runs of letters and digits, in lower case.
    #[default]
    Words,
    /// Words, reduced to their stems by the rules of a language.
    Language(SearchLanguage),
    /// Overlapping parts of words with this number of characters, 2 to 4. Finds parts of words.
    Ngram(u8),
    /// Pairs of adjacent characters in Chinese, Japanese and Korean text, words in other text.
    Cjk,
}

impl SearchAnalyzer {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
    fn is_default(&self) -> bool {
        *self == Self::Words
    }
}

/// Language of an analyzer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchLanguage {
    /// Danish.
    Danish,
    /// Dutch.
    Dutch,
    /// English.
    English,
    /// Finnish.
    Finnish,
    /// French.
    French,
    /// German.
    German,
    /// Italian.
    Italian,
    /// Norwegian.
    Norwegian,
    /// Portuguese.
    Portuguese,
    /// Russian.
    Russian,
    /// Spanish.
    Spanish,
    /// Swedish.
    Swedish,
}

/// Form in which a search index holds the values of a column. A value of another type is not indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchForm {
    /// Whole texts, decimals or bytes: equality, ranges, patterns, order.
    Keyword,
    /// Texts split into words: words and phrases.
    Text,
    /// Integers and doubles: equality, ranges, order. Decimals, rounded to doubles: only order and facets.
    Number,
    /// Timestamps: equality, ranges, order.
    Time,
    /// Booleans: equality, order.
    Bool,
    /// Geo points: areas, order by distance.
    Geo,
}

impl SearchForm {
    /// All forms.
    pub const ALL: [Self; 6] = [
        Self::Keyword,
        Self::Text,
        Self::Number,
        Self::Time,
        Self::Bool,
        Self::Geo,
    ];

    /// Returns the name used in requests, responses and stored settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keyword => "keyword",
            Self::Text => "text",
            Self::Number => "number",
            Self::Time => "time",
            Self::Bool => "bool",
            Self::Geo => "geo",
        }
    }
}

const fn first_number() -> u32 {
    1
}

const fn one_version() -> u32 {
    1
}

const fn one_shard() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn is_one_shard(shards: &u16) -> bool {
    *shards == one_shard()
}

const fn default_guard() -> Option<i64> {
    Some(crate::time::NANOS_PER_DAY)
}

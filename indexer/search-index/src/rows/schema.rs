//! Fields of the documents of rows, and the mapping from a row to its document.
//!
//! | field | holds |
//! |---|---|
//! | `key` | stored key, as a term for removing the document, and as a column for reading the key |
//! | `time` | time of the row, for the time-to-live |
//! | `part` | number of the part of the row, if the table is divided into parts |
//! | `shape` | a term that lists the columns that have a value; the rows of a table have few shapes |
//! | `c0`, `c1`, … | values of a column: terms and a column (keyword), terms with positions (text), a column (others) |
//! | `c0_at` | time of the value of a column, if cells expire individually; equal column names share the field |
//! | `c0_lat`, `c0_lon` | coordinates of geo points, whose field `c0` holds their cells |
//!
//! Numbers have no terms. A scan of their column takes about a nanosecond per document, which is faster than reading
//! the posting lists of many distinct numbers. The column also needs less space than the lists.

use tantivy::columnar::Column;
use tantivy::schema::{
    BytesOptions, FAST, Field, INDEXED, IndexRecordOption, NumericOptions, Schema, TextFieldIndexing,
    TextOptions,
};
use tantivy::tokenizer::{TextAnalyzer, Token, TokenStream, Tokenizer};
use tantivy::{SegmentReader, TantivyDocument};
use tideline_condition::ValueRef;
use tideline_condition::analyzer::analyzed;
use tideline_condition::geo::cell_of;
use tideline_model::SearchAnalyzer;

use super::geo::coordinate_fields;
use super::{RowColumn, RowDocument, RowForm, RowTraits};

/// Maximum size of a keyword or word in the index, in bytes. Longer values are not indexed.
pub const KEYWORD_BYTES_MAX: usize = 32 << 10;

/// Fields of the schema.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    pub(super) key: Field,
    pub(super) time: Field,
    pub(super) part: Option<Field>,
    pub(super) shape: Field,
    pub(super) columns: Vec<ColumnFields>,
}

/// Fields of a column.
#[derive(Debug, Clone)]
pub(super) struct ColumnFields {
    pub(super) form: RowForm,
    pub(super) name: String,
    pub(super) values: Field,
    /// Latitude and longitude of geo points.
    pub(super) degrees: Option<(Field, Field)>,
    /// Times of the values, if cells expire individually.
    pub(super) times: Option<CellTimes>,
}

/// Field with the times of the values of a column.
#[derive(Debug, Clone)]
pub(super) struct CellTimes {
    pub(super) name: String,
    field: Field,
    /// True if an earlier column has the same field.
    is_shared: bool,
}

pub(super) const KEY: &str = "key";
pub(super) const TIME: &str = "time";
pub(super) const PART: &str = "part";

/// Returns the schema of an index. An index on disk with another schema is built again.
pub(super) fn schema(columns: &[RowColumn], traits: RowTraits) -> (Schema, Fields) {
    let mut builder = Schema::builder();
    let key = builder.add_bytes_field(KEY, BytesOptions::default().set_indexed().set_fast());
    let time = builder.add_i64_field(TIME, INDEXED | FAST);
    let part = traits.has_parts.then(|| builder.add_i64_field(PART, FAST));
    let shape = builder.add_bytes_field("shape", BytesOptions::default().set_indexed());
    let mut fields: Vec<ColumnFields> = Vec::with_capacity(columns.len());
    for (number, column) in columns.iter().enumerate() {
        let name = format!("c{number}");
        let fast = NumericOptions::default().set_fast();
        let mut degrees = None;
        let values = match column.form {
            RowForm::Keyword => {
                let terms = TextFieldIndexing::default()
                    .set_tokenizer("raw")
                    .set_fieldnorms(false)
                    .set_index_option(IndexRecordOption::Basic);
                let options = TextOptions::default().set_indexing_options(terms).set_fast("raw");
                builder.add_text_field(&name, options)
            }
            RowForm::Text(analyzer) => {
                let terms = TextFieldIndexing::default()
                    .set_tokenizer(&tokenizer_name(analyzer))
                    .set_fieldnorms(false)
                    .set_index_option(IndexRecordOption::WithFreqsAndPositions);
                builder.add_text_field(&name, TextOptions::default().set_indexing_options(terms))
            }
            RowForm::Signed => builder.add_i64_field(&name, fast),
            RowForm::Unsigned => builder.add_u64_field(&name, fast),
            RowForm::Float => builder.add_f64_field(&name, fast),
            RowForm::Boolean => builder.add_bool_field(&name, fast),
            RowForm::Geo => {
                let [lat, lon] = coordinate_fields(&name);
                let lat = builder.add_f64_field(&lat, fast.clone());
                let lon = builder.add_f64_field(&lon, fast.clone());
                degrees = Some((lat, lon));
                builder.add_u64_field(&name, fast)
            }
        };
        let times = traits.cells_expire.then(|| {
            let first = columns.iter().position(|other| other.name == column.name);
            let known = first.and_then(|first| fields.get(first)?.times.clone());
            match known {
                Some(times) => CellTimes {
                    is_shared: true,
                    ..times
                },
                None => {
                    let times = format!("{name}_at");
                    let field = builder.add_i64_field(&times, FAST);
                    CellTimes {
                        name: times,
                        field,
                        is_shared: false,
                    }
                }
            }
        });
        fields.push(ColumnFields {
            form: column.form,
            name,
            values,
            degrees,
            times,
        });
    }
    let fields = Fields {
        key,
        time,
        part,
        shape,
        columns: fields,
    };
    (builder.build(), fields)
}

impl Fields {
    /// Returns the document of a row.
    pub(super) fn document(&self, row: &dyn RowDocument) -> TantivyDocument {
        let mut document = TantivyDocument::new();
        document.add_bytes(self.key, row.key());
        document.add_i64(self.time, row.time());
        if let Some(part) = self.part {
            document.add_i64(part, i64::from(row.part()));
        }
        let mut shape = vec![0; self.columns.len().div_ceil(8)];
        for (number, column) in self.columns.iter().enumerate() {
            row.each_value(number, &mut |value| {
                shape[number / 8] |= 1 << (number % 8);
                column.add(&mut document, value);
            });
            if let Some(times) = column.times.as_ref().filter(|times| !times.is_shared)
                && let Some(time) = row.cell_time(number)
            {
                document.add_i64(times.field, time);
            }
        }
        document.add_bytes(self.shape, &shape);
        document
    }
}

/// Returns true if the rows of a shape have a value in a column.
pub(super) fn has_column(shape: &[u8], column: usize) -> bool {
    shape
        .get(column / 8)
        .is_some_and(|bits| bits & 1 << (column % 8) != 0)
}

impl ColumnFields {
    /// Returns the values of a number, time or boolean as bits that sort like the values.
    pub(super) fn bits(&self, reader: &SegmentReader) -> tantivy::Result<Column<u64>> {
        let values = reader.fast_fields();
        Ok(match self.form {
            RowForm::Signed => values.i64(&self.name)?.to_u64_monotonic(),
            RowForm::Float => values.f64(&self.name)?.to_u64_monotonic(),
            RowForm::Boolean => values.bool(&self.name)?.to_u64_monotonic(),
            RowForm::Unsigned | RowForm::Keyword | RowForm::Text(_) | RowForm::Geo => {
                values.u64(&self.name)?
            }
        })
    }

    fn add(&self, document: &mut TantivyDocument, value: ValueRef<'_>) {
        if !self.form.holds(value) {
            return;
        }
        match (self.form, value) {
            (RowForm::Keyword | RowForm::Text(_), ValueRef::Text(text)) => {
                document.add_text(self.values, text);
            }
            (RowForm::Signed, ValueRef::Signed(number)) => document.add_i64(self.values, number),
            (RowForm::Unsigned, ValueRef::Unsigned(number)) => document.add_u64(self.values, number),
            // All NaN have the same bits, which sort after all numbers.
            (RowForm::Float, ValueRef::Float(number)) if number.is_nan() => {
                document.add_f64(self.values, f64::NAN);
            }
            // Both zeros are the same number.
            (RowForm::Float, ValueRef::Float(number)) => document.add_f64(self.values, number + 0.0),
            (RowForm::Boolean, ValueRef::Boolean(value)) => document.add_bool(self.values, value),
            (RowForm::Geo, ValueRef::Point(point)) => {
                document.add_u64(self.values, cell_of(point));
                if let Some((lat, lon)) = self.degrees {
                    document.add_f64(lat, point.latitude());
                    document.add_f64(lon, point.longitude());
                }
            }
            _ => {}
        }
    }
}

/// Returns the name of the tokenizer of an analyzer. The schema of an index holds it, so an index with another analyzer
/// is built again.
pub(super) fn tokenizer_name(analyzer: SearchAnalyzer) -> String {
    format!("{analyzer:?}")
}

/// Returns the tokenizer that splits texts in the same way as conditions on words.
pub(super) fn tokenizer(analyzer: SearchAnalyzer) -> TextAnalyzer {
    TextAnalyzer::from(WordTokenizer(analyzer))
}

/// Tokenizer over [`analyzed`].
#[derive(Debug, Clone, Copy)]
struct WordTokenizer(SearchAnalyzer);

/// Words of a text.
struct Words {
    words: std::vec::IntoIter<Token>,
    token: Token,
}

impl Tokenizer for WordTokenizer {
    type TokenStream<'a> = Words;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Words {
        // A word that is not indexed has a position, so that the words around it do not form a phrase.
        let words = analyzed(self.0, text).into_iter().enumerate();
        let words = words.filter(|(_, word)| word.word.len() <= KEYWORD_BYTES_MAX);
        let tokens = words.map(|(position, word)| Token {
            offset_from: word.at.start,
            offset_to: word.at.end,
            position,
            text: word.word.into_owned(),
            position_length: 1,
        });
        Words {
            words: tokens.collect::<Vec<_>>().into_iter(),
            token: Token::default(),
        }
    }
}

impl TokenStream for Words {
    fn advance(&mut self) -> bool {
        match self.words.next() {
            Some(token) => {
                self.token = token;
                true
            }
            None => false,
        }
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

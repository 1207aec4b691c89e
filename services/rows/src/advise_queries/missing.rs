//! Definitions of the indexes that a sample of queries needs and that the table does not have. The definitions are
//! bodies of requests that the table accepts: they have free names, or extend an existing index.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tideline_engine::WideTable;
use tideline_engine::condition::text::TextTest;
use tideline_engine::condition::{Node, Subject};
use tideline_engine::model::{ColumnType, SearchColumnSpec, SearchForm, ValueKind};

/// Name of an advised search index, if it is free.
const SEARCH_NAME: &str = "all";
/// Maximum length of an advised name without the number that makes it unique, in bytes.
const NAME_BYTES_MAX: usize = 240;

/// Tested or sorted columns, each with its form in a search index; `None` for a column without a declared type.
pub(super) type Forms = BTreeSet<(String, Option<&'static str>)>;

/// Advised secondary indexes.
#[derive(Debug)]
pub(super) struct SecondaryIndexes {
    /// Number of indexes that the table can still get.
    room: usize,
    /// Names by key columns.
    names: BTreeMap<Vec<String>, String>,
    /// Definitions, as bodies of requests.
    pub(super) definitions: Vec<Value>,
}

impl SecondaryIndexes {
    /// Returns an empty set for a table that can get `room` more indexes.
    pub(super) fn new(room: usize) -> Self {
        Self {
            room,
            names: BTreeMap::new(),
            definitions: Vec::new(),
        }
    }

    /// Adds an index with these key columns, and returns its name. Adds no index if the table is building one that
    /// begins with these columns. Returns `None` if the table cannot have more indexes.
    pub(super) fn add(&mut self, table: &WideTable, key: &[String]) -> Option<String> {
        if let Some(name) = self.names.get(key) {
            return Some(name.clone());
        }
        let building = table.indexes().iter().find(|index| {
            let columns = index.layout().logical().iter();
            let columns: Vec<String> = columns.map(|column| column.name.clone()).collect();
            !index.is_ready() && index.tier().is_all() && columns.starts_with(key)
        });
        if let Some(building) = building {
            return Some(building.name().to_owned());
        }
        if self.definitions.len() >= self.room {
            return None;
        }
        let is_taken = |name: &str| {
            table.indexes().iter().any(|index| index.name() == name)
                || self.names.values().any(|taken| taken == name)
        };
        let name = free_name(&format!("by_{}", key.join("_")), is_taken);
        let columns: Vec<Value> = key.iter().map(|name| json!({"name": name})).collect();
        let mut definition = json!({"name": name, "key": columns});
        if key.first().is_some_and(|first| is_rising(table, first)) {
            definition["allow_rising_key"] = true.into();
        }
        self.definitions.push(definition);
        self.names.insert(key.to_vec(), name.clone());
        Some(name)
    }
}

/// Returns true if the entries of an index that begins with this column would rise with time.
pub(super) fn is_rising(table: &WideTable, name: &str) -> bool {
    let mut key = table.layout().logical().iter();
    table.type_of(name) == Some(ColumnType::Timestamp)
        || key.any(|column| column.name == name && column.is_generated)
}

/// Advised search index.
#[derive(Debug)]
pub(super) struct SearchIndex {
    /// Name; `None` if the table needs a new index, and cannot have more search indexes.
    pub(super) name: Option<String>,
    /// Definition, as body of a request; `None` if the table is building the index, if no column has a declared type,
    /// or without `name`.
    pub(super) definition: Option<Value>,
}

impl SearchIndex {
    /// Returns the index for columns in these forms. It is an existing index with more columns, or a new one if the
    /// table has no search index of all tiers. `has_room` is false if the table cannot have more search indexes.
    pub(super) fn new(table: &WideTable, forms: &Forms, has_room: bool) -> Self {
        let specs = &table.settings().search_indexes;
        // Of several indexes of one name, the last one replaces the others when it is built.
        let extensible = specs.iter().enumerate().filter(|&(number, spec)| {
            let mut later = specs.iter().skip(number + 1);
            spec.tier.is_all() && later.all(|later| later.name != spec.name)
        });
        let extended = extensible
            .map(|(_, spec)| (spec, missing(forms, &spec.columns)))
            .min_by_key(|(_, missing)| missing.len());
        let Some((spec, missing)) = extended else {
            if !has_room {
                return Self {
                    name: None,
                    definition: None,
                };
            }
            let is_taken = |name: &str| specs.iter().any(|spec| spec.name == name);
            let name = free_name(SEARCH_NAME, is_taken);
            let columns = missing(forms, &[]);
            let definition = (!columns.is_empty()).then(|| json!({"name": name, "columns": columns}));
            return Self {
                name: Some(name),
                definition,
            };
        };
        let mut columns: Vec<Value> = spec.columns.iter().map(|column| json!(column)).collect();
        let is_complete = missing.is_empty();
        columns.extend(missing);
        let mut definition = json!({"name": spec.name, "columns": columns, "replace": true});
        if spec.shards > 1 {
            definition["shards"] = spec.shards.into();
            definition["routing"] = json!(spec.routing);
        }
        Self {
            name: Some(spec.name.clone()),
            definition: (!is_complete).then_some(definition),
        }
    }
}

/// Returns the definitions of the columns that an index with the columns `known` does not have.
fn missing(forms: &Forms, known: &[SearchColumnSpec]) -> Vec<Value> {
    let mut columns = Vec::new();
    for (column, form) in forms {
        let Some(form) = *form else { continue };
        let is_known = known
            .iter()
            .any(|known| known.column == *column && known.form.name() == form);
        if !is_known {
            columns.push(json!({"column": column, "as": form}));
        }
    }
    columns
}

/// Returns a name that is not taken and begins with `base`.
fn free_name(base: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut end = base.len().min(NAME_BYTES_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let base = &base[..end];
    let mut name = base.to_owned();
    let mut number = 2_u32;
    while is_taken(&name) {
        name = format!("{base}_{number}");
        number += 1;
    }
    name
}

/// Adds the columns that a compiled condition tests, in the forms that decide the tests.
pub(super) fn add_tested(table: &WideTable, node: &Node, forms: &mut Forms) {
    let (subject, form) = match node {
        Node::And(nodes) | Node::Or(nodes) => {
            return nodes.iter().for_each(|node| add_tested(table, node, forms));
        }
        Node::Not(node) => return add_tested(table, node, forms),
        Node::Text(subject, TextTest::Words(_) | TextTest::Phrase(_)) => (subject, Some(SearchForm::Text)),
        Node::Text(subject, _) => (subject, Some(SearchForm::Keyword)),
        Node::Area(subject, _) => (subject, Some(SearchForm::Geo)),
        Node::Exists(subject) => (subject, None),
        Node::Intervals {
            subject, intervals, ..
        } => {
            let form = intervals.kind().map(|kind| match kind {
                ValueKind::Number => SearchForm::Number,
                ValueKind::Boolean => SearchForm::Bool,
                ValueKind::String | ValueKind::Histogram => SearchForm::Keyword,
            });
            (subject, form)
        }
        // Tests of columns do not compile to these nodes.
        Node::All | Node::OneOf(..) | Node::Number(..) | Node::Time(..) | Node::Ids(_) => return,
    };
    if let Subject::Column(name) = subject {
        forms.insert((name.clone(), form_of(table, name, form)));
    }
}

/// Adds columns by which a result is sorted.
pub(super) fn add_sorted(table: &WideTable, names: &[String], forms: &mut Forms) {
    for name in names {
        forms.insert((name.clone(), form_of(table, name, None)));
    }
}

/// Returns the form of a column in a search index; `None` for a column without a declared type. `wanted` is the form
/// that a test needs, if it needs a special one.
fn form_of(table: &WideTable, name: &str, wanted: Option<SearchForm>) -> Option<&'static str> {
    let form = match table.type_of(name)? {
        ColumnType::String | ColumnType::Json => wanted.unwrap_or(SearchForm::Keyword),
        ColumnType::I64 | ColumnType::U64 | ColumnType::F64 => SearchForm::Number,
        ColumnType::Timestamp => SearchForm::Time,
        ColumnType::Bool => SearchForm::Bool,
        ColumnType::Decimal | ColumnType::Binary => SearchForm::Keyword,
    };
    Some(form.name())
}

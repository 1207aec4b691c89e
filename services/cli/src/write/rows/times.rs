//! Detection of integers in timestamp columns that are probably seconds, milliseconds or microseconds.
//!
//! The server reads integers as nanoseconds, so that such times would be stored near 1970. The first records of each text
//! file are checked, before they are sent. Only if they have such integers, the types of the table are requested.

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::{Map, Value};

use super::source::RowBatch;
use crate::client::Client;
use crate::commands::rows::shape::TableShape;
use crate::write::csv::likely_unit;
use crate::write::early::is_near_1970;
use crate::write::record::Framing;

/// Number of records that are checked.
const RECORDS_MAX: usize = 1_000;
/// Smallest integer that is taken for a time. As seconds, it is a time in 1973.
const TIME_MIN: u64 = 100_000_000;

/// Integers of a column.
#[derive(Debug, Default)]
struct Integers {
    count: u64,
    /// Number of integers that would be times near 1970.
    near: u64,
    largest: u64,
}

impl Integers {
    fn add(&mut self, number: i64) {
        self.count += 1;
        let size = number.unsigned_abs();
        if size >= TIME_MIN && is_near_1970(number, "ns") {
            self.near += 1;
            self.largest = self.largest.max(size);
        }
    }
}

/// Prints a warning for each timestamp column of a batch with integers that are probably in another unit.
pub(super) fn warn(client: &Client, batch: &RowBatch, mapping: &Map<String, Value>) {
    let Some(framing) = batch.framing else { return };
    let suspects = suspects(&batch.header, &batch.block.bytes, framing);
    if suspects.is_empty() {
        return;
    }
    // Without the types of the table there is no warning.
    let table = client.get(&client.of_table(""));
    let Ok(table) = table.and_then(|table| client.parse(&table)) else {
        return;
    };
    let shape = TableShape::new(&table);
    for (column, unit) in suspects {
        let name = match mapping.get(&column) {
            None => column.as_str(),
            Some(Value::String(name)) => name.as_str(),
            Some(_) => continue,
        };
        if shape.type_of(name) == Some("timestamp") {
            eprintln!(
                "warning: {}: most integers in column {column} are near 1970, because they are read as nanoseconds; they \
                 look like {unit}. Convert them to nanoseconds, or to texts such as 2026-11-20T12:00:00Z",
                batch.path
            );
        }
    }
}

/// Returns the columns whose integers are probably times in another unit than nanoseconds, each with the unit.
fn suspects(header: &[u8], records: &[u8], framing: Framing) -> Vec<(String, &'static str)> {
    let columns = match framing {
        Framing::Ndjson => of_lines(records),
        _ => of_csv(header, records),
    };
    let suspects = columns
        .into_iter()
        .filter(|(_, integers)| integers.near > integers.count / 2);
    let named = suspects.map(|(column, integers)| {
        let unit = match likely_unit(integers.largest) {
            "s" => "seconds",
            "ms" => "milliseconds",
            _ => "microseconds",
        };
        (column, unit)
    });
    named.collect()
}

fn of_csv(header: &[u8], records: &[u8]) -> BTreeMap<String, Integers> {
    let mut columns: BTreeMap<String, Integers> = BTreeMap::new();
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(header.chain(records));
    let Ok(names) = reader.headers().cloned() else {
        return columns;
    };
    for record in reader.records().take(RECORDS_MAX).flatten() {
        for (name, cell) in names.iter().zip(&record) {
            if let Ok(number) = cell.trim().parse() {
                columns.entry(name.to_owned()).or_default().add(number);
            }
        }
    }
    columns
}

fn of_lines(records: &[u8]) -> BTreeMap<String, Integers> {
    let mut columns: BTreeMap<String, Integers> = BTreeMap::new();
    for line in records.split(|byte| *byte == b'\n').take(RECORDS_MAX) {
        let Ok(Value::Object(line)) = serde_json::from_slice(line) else {
            continue;
        };
        let parts = match (line.get("key"), line.get("columns")) {
            (Some(Value::Object(key)), Some(Value::Object(columns))) => vec![key, columns],
            (Some(Value::Object(key)), _) => vec![key],
            _ => vec![&line],
        };
        for (name, value) in parts.into_iter().flatten() {
            if let Some(number) = value.as_i64() {
                columns.entry(name.clone()).or_default().add(number);
            }
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_other_units_are_found() {
        let csv =
            |records: &str| suspects(b"id,at,n\n", records.as_bytes(), Framing::Csv { delimiter: b',' });
        let found = |unit| vec![("at".to_owned(), unit)];
        assert_eq!(csv("a,1700000000,1\nb,1700000001,2\n"), found("seconds"));
        assert_eq!(csv("a,1700000000000,1\nb,,2\n"), found("milliseconds"));
        assert_eq!(csv("a,1700000000000000,1\n"), found("microseconds"));
        assert!(csv("a,1700000000000000000,1\nb,2026-11-20,2\nc,5,3\n").is_empty());
        let lines = "{\"key\":{\"id\":\"a\",\"at\":1700000000}}\n\n{\"id\":\"b\",\"at\":1700000000,\"n\":5}\nno JSON\n";
        assert_eq!(suspects(b"", lines.as_bytes(), Framing::Ndjson), found("seconds"));
    }
}

//! Fuzz target: arbitrary bytes as a key of a schema that is derived from the first bytes. Decoding returns an error
//! or a tuple that encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_key_codec::tuple::{ColumnOrder, KeyColumn, KeyKind, KeySchema};

/// Derives a column from one byte.
fn column(byte: u8) -> KeyColumn {
    KeyColumn {
        kind: KeyKind::ALL[usize::from(byte / 2) % KeyKind::ALL.len()],
        order: match byte % 2 {
            0 => ColumnOrder::Ascending,
            _ => ColumnOrder::Descending,
        },
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((count, rest)) = input.split_first() else {
        return;
    };
    let Some((columns, key)) = rest.split_at_checked(usize::from(count % 9)) else {
        return;
    };
    let columns: Vec<KeyColumn> = columns.iter().map(|byte| column(*byte)).collect();
    let Ok(schema) = KeySchema::new(columns) else {
        return;
    };
    if let Ok(values) = schema.decode(key) {
        let mut again = Vec::new();
        schema
            .encode(&values, &mut again)
            .expect("what was decoded encodes");
        assert_eq!(again, key);
    }
});

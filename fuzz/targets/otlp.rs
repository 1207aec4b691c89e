//! Fuzz target: arbitrary bytes as OTLP metrics in both encodings, with arbitrary settings. Decoding returns rows and
//! rejected data points, or an error, and never panics. The number of rejected data points never exceeds the number of
//! received ones.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_ingest_protocols::prometheus::{
    DeltaTemporality, OtlpEncoding, OtlpSettings, TranslationStrategy, decode_otlp,
};
use tideline_ingest_protocols::{DecodeOptions, series_key};
use tideline_model::{Ordinal, RejectReason, SeriesResolver, Timestamp};

/// Series resolver that validates each name like the engine and maps all names to one timeline.
struct Parse;

impl SeriesResolver for Parse {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
        series_key::parse(key)?;
        Ok(Ordinal(0))
    }
}

/// Returns the settings that a byte selects.
fn settings(choice: u8) -> OtlpSettings {
    let has = |bit: u8| choice & 1 << bit != 0;
    OtlpSettings {
        translation_strategy: match (has(0), has(1)) {
            (false, false) => TranslationStrategy::UnderscoreEscapingWithSuffixes,
            (true, false) => TranslationStrategy::UnderscoreEscapingWithoutSuffixes,
            (false, true) => TranslationStrategy::NoUtf8EscapingWithSuffixes,
            (true, true) => TranslationStrategy::NoTranslation,
        },
        promote_all_resource_attributes: has(2),
        keep_identifying_resource_attributes: has(3),
        promote_scope_metadata: has(4),
        convert_histograms_to_nhcb: has(5),
        label_name_preserve_multiple_underscores: has(6),
        delta_temporality: match has(7) {
            false => DeltaTemporality::Refuse,
            true => DeltaTemporality::Store,
        },
        ..OtlpSettings::default()
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, body) = input;
    let options = DecodeOptions::new(Timestamp::EPOCH);
    for encoding in [OtlpEncoding::Protobuf, OtlpEncoding::Json] {
        let is_known = |_: &str, _: &str, _: &str, _: &str| false;
        let decoded = decode_otlp(body, encoding, &settings(choice), &options, &mut Parse, &is_known);
        if let Ok(decoded) = decoded {
            let lines = decoded.batch.rejects.iter().map(|reject| reject.line);
            assert!(decoded.rejected_points(lines) <= decoded.points);
        }
    }
});

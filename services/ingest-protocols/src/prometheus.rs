//! Samples as Prometheus and its kin send them.
//!
//! A series is a timeline: the label `__name__` is its measurement, its other labels are its tags. A number is the
//! field [`VALUE_FIELD`], kept bit for bit: stale markers and other NaN payloads come out as they went in. A
//! native histogram is the field [`HISTOGRAM_FIELD`].
//!
//! | module | reads |
//! |---|---|
//! | `write_v1`, `write_v2` | remote write, both versions, decompressed |
//! | `exposition`, `sample_line` | text exposition and OpenMetrics |
//! | `metric_family` | metric families as messages, which client libraries push |
//! | `json_lines` | JSON lines in the form of VictoriaMetrics |
//! | `import` | what a request says about all samples of those |
//! | `read` | requests of remote read, decompressed |
//! | `wire` | Protocol Buffers, in place |
//! | `labels` | the labels of a series as the raw key of its timeline |
//! | `samples`, `group` | gather what they read into groups of rows |
//! | `decoded` | what a body held |
//! | `histogram` | native histograms |
//! | `exemplar`, `metadata` | what is said beside the samples |

mod decoded;
mod exemplar;
mod exposition;
mod group;
mod histogram;
mod import;
mod json_lines;
pub(crate) mod labels;
mod metadata;
mod metric_family;
mod read;
mod sample_line;
mod samples;
mod wire;
mod write_v1;
mod write_v2;

pub use decoded::{DecodedSamples, SampleCounts, SampleKind};
pub use exposition::{TextFormat, decode_text};
pub use group::{EXEMPLAR_FIELD, HISTOGRAM_FIELD, START_FIELD, VALUE_FIELD, is_sample_detail};
pub use import::ImportOptions;
pub use json_lines::decode_json_lines;
pub use metadata::{KnownMetadata, MetricMetadata};
pub use metric_family::decode_metric_families;
pub use read::{ReadMatcher, ReadMatcherKind, ReadQuery, ReadRequest, ReadResponseType, decode_read};
pub use tideline_histogram::STALE_NAN_BITS;
pub use write_v1::decode_write;
pub use write_v2::decode_write_v2;

use wire::{Fields, Payload, Read};

/// How many messages a field of the outermost one has. Also says whether that is whole: nothing of a body that was cut
/// off is to be looked at.
fn count_messages(body: &[u8], field: u32) -> Read<usize> {
    let mut count = 0;
    let mut fields = Fields::new(body);
    while let Some((number, payload)) = fields.next()? {
        count += usize::from(number == field && matches!(payload, Payload::Bytes(_)));
    }
    Ok(count)
}

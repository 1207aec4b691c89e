//! Native JSON with one point per line; see [`crate::json`] for the format of a point.
//!
//! An invalid line does not affect the others, so a body that is cut off loses only its last, incomplete point.

use tideline_model::{PointBatch, SeriesResolver};

use crate::json::PointWriter;
use crate::options::DecodeOptions;

/// Decodes one point from each line that is not blank. Lines end with LF or CRLF. Never fails as a whole.
pub fn decode(body: &[u8], options: DecodeOptions, resolver: &mut impl SeriesResolver) -> PointBatch {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let mut writer = PointWriter::new(options, resolver);
    for (line, number) in body.split(|byte| *byte == b'\n').zip(1u32..) {
        let line = line.trim_ascii();
        match std::str::from_utf8(line) {
            Ok("") => {}
            Ok(element) => writer.write(number, element),
            Err(_) => writer.reject(number, "invalid UTF-8", line),
        }
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use tideline_model::{Ordinal, RejectReason, Timestamp};

    use super::*;

    struct OneTimeline;

    impl SeriesResolver for OneTimeline {
        fn resolve(&mut self, _key: &[u8]) -> Result<Ordinal, RejectReason> {
            Ok(Ordinal(0))
        }
    }

    #[test]
    fn each_line_stands_alone() {
        let body = b"{\"measurement\":\"m\",\"fields\":{\"f\":1}}\r\n\n  {\"measurement\":\n\xff\n\
                     {\"measurement\":\"m\",\"fields\":{\"f\":2}}";
        let batch = decode(body, DecodeOptions::new(Timestamp::EPOCH), &mut OneTimeline);
        assert_eq!(batch.groups.len(), 1);
        assert_eq!(batch.groups[0].lines, [1, 5]);
        let rejects: Vec<_> = batch
            .rejects
            .iter()
            .map(|reject| (reject.line, reject.reason.clone()))
            .collect();
        let expected = [(3, "EOF while parsing a value"), (4, "invalid UTF-8")];
        assert_eq!(rejects, expected.map(|(line, reason)| (line, reason.into())));
    }
}

//! Stored text of an exemplar: `{"labels":{"trace_id":"…"},"value":0.5}`.
//!
//! An exemplar is stored as a string field, because its labels belong to the observation and not to the series.

use serde_json::ser::{CompactFormatter, Formatter};

use crate::reject::{Reason, too_large};

/// Maximum size of the stored text, in bytes. Prometheus allows 128 characters for the labels of an exemplar.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// Builder of the text. The buffer is reused.
#[derive(Debug, Default)]
pub(crate) struct ExemplarText {
    text: Vec<u8>,
    labels: usize,
    is_text: bool,
}

impl ExemplarText {
    /// Starts a new exemplar.
    pub(crate) fn start(&mut self) {
        self.text.clear();
        self.text.extend_from_slice(br#"{"labels":{"#);
        self.labels = 0;
        self.is_text = true;
    }

    /// Adds a label.
    pub(crate) fn label(&mut self, name: &[u8], value: &[u8]) {
        let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else {
            self.is_text = false;
            return;
        };
        // The text is already over the limit and will be rejected.
        if self.text.len() > TEXT_BYTES_MAX {
            return;
        }
        if self.labels > 0 {
            self.text.push(b',');
        }
        self.labels += 1;
        put_string(name, &mut self.text);
        self.text.push(b':');
        put_string(value, &mut self.text);
    }

    /// Completes the exemplar with its value and returns the text. Values that JSON numbers cannot represent become
    /// strings: `"NaN"`, `"+Inf"`, `"-Inf"`. Fails if a label is not UTF-8 or the text is too large.
    pub(crate) fn finish(&mut self, value: f64) -> Result<&str, Reason> {
        if !self.is_text {
            return Err("invalid UTF-8 in the labels of an exemplar".into());
        }
        self.text.extend_from_slice(br#"},"value":"#);
        match value {
            value if value.is_nan() => self.text.extend_from_slice(br#""NaN""#),
            f64::INFINITY => self.text.extend_from_slice(br#""+Inf""#),
            f64::NEG_INFINITY => self.text.extend_from_slice(br#""-Inf""#),
            value => CompactFormatter
                .write_f64(&mut self.text, value)
                .expect("writing to memory does not fail"),
        }
        self.text.push(b'}');
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(too_large("exemplar", self.text.len(), TEXT_BYTES_MAX));
        }
        Ok(std::str::from_utf8(&self.text).expect("it is made of text"))
    }
}

fn put_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exemplar_is_json() {
        let mut exemplar = ExemplarText::default();
        exemplar.start();
        exemplar.label(b"trace_id", b"a\"b\\");
        exemplar.label(b"span", "ä".as_bytes());
        let text = exemplar.finish(0.5).expect("fits").to_owned();
        assert_eq!(text, r#"{"labels":{"trace_id":"a\"b\\","span":"ä"},"value":0.5}"#);
        for (value, shown) in [
            (f64::NAN, "\"NaN\""),
            (f64::INFINITY, "\"+Inf\""),
            (1e300, "1e+300"),
            (3.0, "3.0"),
        ] {
            exemplar.start();
            assert_eq!(
                exemplar.finish(value).expect("fits"),
                format!("{{\"labels\":{{}},\"value\":{shown}}}")
            );
        }
        exemplar.start();
        exemplar.label(b"a", b"\xff");
        assert!(exemplar.finish(1.0).is_err());
        exemplar.start();
        exemplar.label(b"a", &[b'x'; TEXT_BYTES_MAX]);
        assert!(exemplar.finish(1.0).is_err());
    }
}

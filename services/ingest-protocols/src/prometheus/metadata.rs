//! Metadata of metrics: type, help text and unit.
//!
//! Senders repeat the metadata with every request, or even with every series. The decoders keep one entry per metric
//! family of a body.

use hashbrown::HashMap;

/// Metadata of a metric family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetricMetadata {
    /// Name of the family.
    pub name: String,
    /// `counter`, `gauge`, `histogram`, `gaugehistogram`, `summary`, `info`, `stateset` or `unknown`.
    pub kind: &'static str,
    /// Description of the metric; may be empty.
    pub help: String,
    /// Unit of the values; may be empty.
    pub unit: String,
}

/// Callback that returns true if the metadata (name, type, help, unit) is already stored. Such metadata is skipped.
pub type KnownMetadata<'a> = dyn Fn(&str, &str, &str, &str) -> bool + 'a;

/// Names of the metric types, indexed by their number in both versions of remote write. The first is the unknown type.
pub(crate) const KINDS: [&str; 8] = [
    "unknown",
    "counter",
    "gauge",
    "histogram",
    "gaugehistogram",
    "summary",
    "info",
    "stateset",
];

/// Returns the type with this number; `unknown` for any other number.
pub(crate) fn kind_of_number(number: u64) -> &'static str {
    let known = usize::try_from(number).ok().and_then(|number| KINDS.get(number));
    known.copied().unwrap_or(KINDS[0])
}

/// Returns the type with this name in a text format; `None` for an unknown name. `untyped` is the unknown type.
pub(crate) fn kind_of_word(word: &str) -> Option<&'static str> {
    let word = if word == "untyped" { KINDS[0] } else { word };
    KINDS.into_iter().find(|kind| *kind == word)
}

/// Returns the metric family of a series name. For histograms, gauge histograms and summaries, this is the name without
/// a suffix such as `_bucket`, `_sum` or `_count`; for other types, it is the name itself.
pub(crate) fn family<'a>(name: &'a str, kind: &str) -> &'a str {
    let suffixes: &[&str] = match kind {
        "histogram" => &["_bucket", "_count", "_sum"],
        "gaugehistogram" => &["_bucket", "_gcount", "_gsum"],
        "summary" => &["_count", "_sum"],
        _ => &[],
    };
    let part_of = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
    part_of.filter(|family| !family.is_empty()).unwrap_or(name)
}

/// List of metadata; the last entry of a name counts.
#[derive(Debug, Default)]
pub(crate) struct MetadataList {
    list: Vec<MetricMetadata>,
    by_name: HashMap<String, usize>,
    /// Scratch entry for names beyond the limit; its content is discarded.
    beyond: MetricMetadata,
}

/// Maximum number of families of one body whose metadata is kept; metadata of further families is discarded. An entry
/// takes about a hundred bytes even if its line is short.
const FAMILIES_MAX: usize = 65_536;

impl MetadataList {
    pub(crate) fn set(&mut self, name: &str, kind: &'static str, help: &str, unit: &str) {
        let known = self.of(name);
        if (known.kind, &*known.help, &*known.unit) != (kind, help, unit) {
            known.kind = kind;
            help.clone_into(&mut known.help);
            unit.clone_into(&mut known.unit);
        }
    }

    pub(crate) fn set_kind(&mut self, name: &str, kind: &'static str) {
        self.of(name).kind = kind;
    }

    pub(crate) fn set_help(&mut self, name: &str, help: &str) {
        help.clone_into(&mut self.of(name).help);
    }

    pub(crate) fn set_unit(&mut self, name: &str, unit: &str) {
        unit.clone_into(&mut self.of(name).unit);
    }

    /// Returns the entry of a name; adds it if necessary. A new name beyond the limit gets the scratch entry.
    fn of(&mut self, name: &str) -> &mut MetricMetadata {
        let at = match self.by_name.get(name) {
            Some(at) => *at,
            None if self.list.len() >= FAMILIES_MAX => return &mut self.beyond,
            None => {
                self.by_name.insert(name.to_owned(), self.list.len());
                self.list.push(MetricMetadata {
                    name: name.to_owned(),
                    kind: KINDS[0],
                    ..MetricMetadata::default()
                });
                self.list.len() - 1
            }
        };
        &mut self.list[at]
    }

    pub(crate) fn into_list(self) -> Vec<MetricMetadata> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_histogram_belong_to_it() {
        assert_eq!(family("latency_seconds_bucket", "histogram"), "latency_seconds");
        assert_eq!(family("latency_seconds", "histogram"), "latency_seconds");
        assert_eq!(family("size_sum", "summary"), "size");
        assert_eq!(family("gc_count", "gauge"), "gc_count");
        assert_eq!(family("_sum", "summary"), "_sum");
    }

    #[test]
    fn of_one_name_the_last_counts() {
        let mut list = MetadataList::default();
        list.set("a", "gauge", "first", "");
        list.set("b", kind_of_number(1), "", "bytes");
        list.set("a", kind_of_number(99), "last", "");
        let list = list.into_list();
        assert_eq!(list.len(), 2);
        assert_eq!((list[0].kind, &*list[0].help), ("unknown", "last"));
        assert_eq!((list[1].kind, &*list[1].unit), ("counter", "bytes"));
    }
}

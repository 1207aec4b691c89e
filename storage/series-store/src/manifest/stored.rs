//! Serialization of row members that do not use the derived form.

/// Stores files as the content of the row with the separate list, if there is one.
pub(super) mod files {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use tideline_archive::ArchiveCopy;

    use crate::manifest::files::{FilesList, SegmentFiles};

    #[derive(Serialize)]
    struct Written<'a> {
        #[serde(flatten)]
        copy: &'a ArchiveCopy,
        #[serde(skip_serializing_if = "Option::is_none")]
        list: Option<&'a FilesList>,
    }

    #[derive(Deserialize)]
    struct Read {
        #[serde(flatten)]
        copy: ArchiveCopy,
        #[serde(default)]
        list: Option<FilesList>,
    }

    pub(in crate::manifest) fn serialize<S: Serializer>(
        files: &Option<SegmentFiles>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let written = files.as_ref().map(|files| {
            let (copy, list) = files.row();
            Written { copy, list }
        });
        written.serialize(to)
    }

    pub(in crate::manifest) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<SegmentFiles>, D::Error> {
        let read = Option::<Read>::deserialize(from)?;
        Ok(read.map(|read| SegmentFiles::from_row(read.copy, read.list)))
    }
}

//! How members of rows are written that are no plain data.

/// Stores files as what the row has of them, with the list of the others.
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

/// Stores id newtypes as plain numbers.
macro_rules! as_number {
    ($module:ident, $type:ident, $int:ty) => {
        pub(super) mod $module {
            use serde::{Deserialize, Deserializer, Serializer};
            use tideline_model::$type;

            pub(in crate::manifest) fn serialize<S: Serializer>(
                id: &$type,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                to.serialize_u64(u64::from(id.0))
            }

            pub(in crate::manifest) fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<$type, D::Error> {
                <$int>::deserialize(from).map($type)
            }
        }
    };
}

as_number!(id, SegmentId, u64);
as_number!(group, GroupId, u64);
as_number!(table, TableId, u32);
as_number!(sequence, SequenceNumber, u64);

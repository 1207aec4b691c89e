//! How members of rows are written that are no plain data.

/// Stores what is shared as what it is.
pub(super) mod files {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use tideline_archive::ArchiveCopy;

    pub(in crate::manifest) fn serialize<S: Serializer>(
        files: &Option<Arc<ArchiveCopy>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        files.as_deref().serialize(to)
    }

    pub(in crate::manifest) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<ArchiveCopy>>, D::Error> {
        Ok(Option::<ArchiveCopy>::deserialize(from)?.map(Arc::new))
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

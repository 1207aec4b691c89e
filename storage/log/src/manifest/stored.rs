//! Ids as members of stored rows: plain numbers.

macro_rules! as_number {
    ($module:ident, $type:ident, $int:ty, $what:literal) => {
        #[doc = concat!("Stores ", $what, " as a plain number: `#[serde(with = …)]`.")]
        pub mod $module {
            use serde::{Deserialize, Deserializer, Serializer};
            use tideline_model::$type;

            /// Writes it.
            ///
            /// # Errors
            ///
            /// Those of the serializer.
            pub fn serialize<S: Serializer>(id: &$type, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_u64(u64::from(id.0))
            }

            /// Reads it.
            ///
            /// # Errors
            ///
            /// It is no number, or too large.
            pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                <$int>::deserialize(from).map($type)
            }
        }
    };
}

as_number!(id, SegmentId, u64, "the id of a segment");
as_number!(group, GroupId, u64, "the id of a group");
as_number!(table, TableId, u32, "the id of a table");
as_number!(sequence, SequenceNumber, u64, "a sequence");

//! Serde modules that store ids as plain numbers.

macro_rules! as_number {
    ($module:ident, $type:ident, $int:ty, $what:literal) => {
        #[doc = concat!("Stores ", $what, " as a plain number: `#[serde(with = …)]`.")]
        pub mod $module {
            use serde::{Deserialize, Deserializer, Serializer};
            use tideline_model::$type;

            /// Serializes the id as a number.
            ///
            /// # Errors
            ///
            /// The errors of the serializer.
            pub fn serialize<S: Serializer>(id: &$type, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_u64(u64::from(id.0))
            }

            /// Deserializes the id from a number.
            ///
            /// # Errors
            ///
            /// An error if the value is not a number or exceeds the range of the id.
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

//! JSON objects whose names must be unique.
//!
//! The usual maps keep the last of several members with the same name. In a request, such a member is more likely a
//! mistake than intended.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Map that is read from a JSON object. An object with a repeated name is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UniqueMap<V>(
    /// Values by name.
    pub BTreeMap<String, V>,
);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Object<V> {
            type Value = UniqueMap<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut values = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, V>()? {
                    if values.contains_key(&name) {
                        return Err(A::Error::custom(format_args!("the name {name:?} is given twice")));
                    }
                    values.insert(name, value);
                }
                Ok(UniqueMap(values))
            }
        }

        deserializer.deserialize_map(Object(PhantomData))
    }
}

/// Reads the member of a request that is a map.
pub(crate) fn map<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    UniqueMap::deserialize(deserializer).map(|map| map.0)
}

/// Reads the member of a request that is a map or missing.
pub(crate) fn optional_map<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, V>>, D::Error> {
    let map = Option::<UniqueMap<V>>::deserialize(deserializer)?;
    Ok(map.map(|map| map.0))
}

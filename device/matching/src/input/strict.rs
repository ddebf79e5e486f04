//! Readers that are as strict as the schemas. serde alone would accept an array in place of an object, and a value
//! twice in a set.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A value that must be an object. A derived reader would also accept an array of the values.
pub struct Keyed<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Keyed<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(Object(PhantomData))
    }
}

struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = Keyed<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object, {\"key\": value, ...}")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Keyed<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Keyed)
    }
}

/// An array without duplicates.
pub fn set<'de, D, T>(reader: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + PartialEq,
{
    reader.deserialize_seq(Set(PhantomData))
}

struct Set<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + PartialEq> Visitor<'de> for Set<T> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Vec<T>, A::Error> {
        let mut set = Vec::new();
        while let Some(value) = values.next_element()? {
            // Few values are possible, so the set stays short for any file.
            if set.contains(&value) {
                return Err(A::Error::custom("a value appears twice in this array"));
            }
            set.push(value);
        }
        Ok(set)
    }
}

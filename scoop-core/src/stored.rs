//! The requirements of storage for a type.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::DeserializeOwned;
use serde::ser::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::finite::Finite;

/// A value that is stored as JSON: serde can write it and read it back.
///
/// Messages, replies, elements of the context and errors with a code are such values. Every type
/// with `Serialize` and `Deserialize` implements it; there is nothing else to write.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::Stored;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Quote {
///     cents: u64,
/// }
///
/// fn can_be_stored<T: Stored>() {}
///
/// can_be_stored::<Quote>();
/// can_be_stored::<Vec<Quote>>();
/// ```
// Without supertraits: the compiler would report each of those instead, in the terms of serde.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored: it is not both `Serialize` and `Deserialize`",
    label = "cannot be stored",
    note = "write `#[derive(Serialize, Deserialize)]` on `{Self}`; if it is of another crate, \
            enable that crate's feature `serde`"
)]
pub trait Stored: Sized {
    /// [`Serialize::serialize`].
    #[doc(hidden)]
    fn write_stored<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;

    /// [`Deserialize::deserialize`].
    #[doc(hidden)]
    fn read_stored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Stored for T {
    fn write_stored<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize(serializer)
    }

    fn read_stored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer)
    }
}

/// The serde implementations of a stored value. Writing fails if a float in it is NaN or infinite.
pub struct Json<T>(pub T);

impl<T: Stored> Json<T> {
    /// Writes a value, and reads it back: what its type does not read would leave a run stuck.
    ///
    /// # Errors
    ///
    /// If JSON cannot express it, if a number in it would not be stored as it is, or if its type does not read it.
    pub fn to_value(value: &T) -> serde_json::Result<Value> {
        let written = value.write_stored(Finite::as_value(serde_json::value::Serializer))?;
        Self::check(|| T::read_stored(&written))?;
        Ok(written)
    }

    /// As [`Self::to_value`], with all digits.
    pub(crate) fn to_raw_value(value: &T) -> serde_json::Result<Box<RawValue>> {
        let written = serde_json::value::to_raw_value(&Json(value))?;
        Self::check(|| serde_json::from_str::<Self>(written.get()))?;
        Ok(written)
    }

    /// Reads a value back. A panic when that is dropped is none of the value that was written.
    fn check<R>(read: impl FnOnce() -> serde_json::Result<R>) -> serde_json::Result<()> {
        let why = match catch_unwind(AssertUnwindSafe(read)) {
            Ok(Ok(value)) => {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
                return Ok(());
            }
            Ok(Err(why)) => why.to_string(),
            Err(_) => "it panics".into(),
        };
        let name = std::any::type_name::<T>();
        Err(serde_json::Error::custom(format_args!("`{name}` does not read back what it writes: {why}")))
    }
}

impl<T: Stored> Serialize for Json<&T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.write_stored(Finite::new(serializer))
    }
}

impl<'de, T: Stored> Deserialize<'de> for Json<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read_stored(deserializer).map(Self)
    }
}

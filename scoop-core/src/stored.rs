//! The requirements of storage for a type.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

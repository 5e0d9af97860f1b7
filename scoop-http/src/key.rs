//! Secrets, as keys of HMAC-SHA256. No text of the secret is kept.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// A secret that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSecret {
    /// It has nothing but spaces or a prefix, such as that of an empty variable of the environment: anyone could sign.
    #[error("the secret is empty")]
    Empty,
    /// A secret of Standard Webhooks is `whsec_` and base64.
    #[error("the secret is not `whsec_` and base64")]
    NotBase64,
    /// The secret of a [`Signer`](crate::Signer) has 24 to 64 bytes.
    #[error("the secret does not have 24 to 64 bytes")]
    Length,
}

#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    pub(crate) fn from_bytes(secret: &[u8]) -> Result<Self, BadSecret> {
        if secret.strip_prefix(b"whsec_").unwrap_or(secret).trim_ascii().is_empty() {
            return Err(BadSecret::Empty);
        }
        Ok(Self(Hmac::new_from_slice(secret).expect("HMAC takes a key of any length")))
    }

    /// The bytes of a secret of Standard Webhooks.
    pub(crate) fn decode_standard(secret: &str) -> Result<Vec<u8>, BadSecret> {
        BASE64.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).map_err(|_| BadSecret::NotBase64)
    }

    /// The state after these bytes: its tag is the signature of them.
    pub(crate) fn mac<'a>(&self, signed: impl IntoIterator<Item = &'a [u8]>) -> Hmac<Sha256> {
        signed.into_iter().fold(self.0.clone(), |mac, part| mac.chain_update(part))
    }
}

//! What the page derives from its token: the session of a browser, and the proof that a form is its own.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The bytes of a random token.
const TOKEN_BYTES: usize = 20;

/// Values that only visitors with the token know, or the program alone if there is none.
pub(crate) struct Secret {
    /// The value of the cookie of a visitor who knows the token.
    session: String,
    /// The name of that cookie, so that pages with other tokens on the same host have their own.
    cookie: String,
    /// The hidden field of a form.
    form: String,
    token: Option<String>,
}

impl Secret {
    pub(crate) fn of(token: Option<&str>) -> Self {
        let seed = token.map_or_else(random_token, str::to_owned);
        let cookie = format!("scoop-{}", &derived("cookie", &seed)[..8]);
        let (session, form) = (derived("session", &seed), derived("form", &seed));
        Self { session, cookie, form, token: token.map(str::to_owned) }
    }

    /// Whether visitors need a token.
    pub(crate) fn is_needed(&self) -> bool {
        self.token.is_some()
    }

    pub(crate) fn is_token(&self, token: &str) -> bool {
        // Digests, so that their comparison does not depend on the length of the token.
        self.token.as_ref().is_some_and(|own| is_equal(&derived("token", own), &derived("token", token)))
    }

    pub(crate) fn is_session(&self, session: &str) -> bool {
        is_equal(&self.session, session)
    }

    pub(crate) fn is_form(&self, form: &str) -> bool {
        is_equal(&self.form, form)
    }

    /// The name and the value of the cookie of a session.
    pub(crate) fn session(&self) -> (&str, &str) {
        (&self.cookie, &self.session)
    }

    /// The value of the hidden field.
    pub(crate) fn form(&self) -> &str {
        &self.form
    }
}

/// Compares in a time that does not tell where the texts differ.
fn is_equal(known: &str, given: &str) -> bool {
    known.as_bytes().ct_eq(given.as_bytes()).into()
}

fn derived(purpose: &str, seed: &str) -> String {
    let digest = Sha256::new().chain_update("scoop-web ").chain_update(purpose).chain_update([0]);
    hex(&digest.chain_update(seed).finalize())
}

/// A token that cannot be guessed, of characters that a URL can have.
pub(crate) fn random_token() -> String {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).expect("the operating system has random numbers");
    hex(&bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_and_form_of_another_token_are_refused() {
        let (own, other) =
            (Secret::of(Some("a token of this test")), Secret::of(Some("another token of it")));
        assert!(own.is_token("a token of this test") && !own.is_token("another token of it"));
        assert!(own.is_session(own.session().1) && !own.is_session(other.session().1));
        assert!(own.is_form(own.form()) && !own.is_form(other.form()) && !own.is_form(own.session().1));
        assert!(!own.is_session("") && !own.is_form(""));
    }

    #[test]
    fn without_a_token_forms_of_another_process_are_refused() {
        let (own, other) = (Secret::of(None), Secret::of(None));
        assert!(!own.is_needed() && !own.is_token(""));
        assert!(own.is_form(own.form()) && !own.is_form(other.form()));
    }
}

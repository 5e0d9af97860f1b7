//! The refusal of cron expressions without the feature `cron`, with which alone they are checked and followed.

use syn::LitStr;

use super::Recurrence;
use crate::errors::Errors;

const MISSING: &str = "a schedule with `cron` needs the feature `cron` of the package `scoop-saga`; add \
                       `features = [\"cron\"]` to it in Cargo.toml, or write `every = \"1d\"`";

/// No times: the feature is missing.
pub(super) fn times(cron: &LitStr, _: Option<&LitStr>, errors: &mut Errors) -> Option<Recurrence> {
    errors.at(cron, MISSING);
    None
}

#[cfg(test)]
mod tests {
    use quote::{ToTokens, quote};
    use syn::parse_quote;

    use super::*;

    #[test]
    fn cron_without_the_feature_is_one_error_that_names_the_feature() {
        let mut errors = Errors::default();
        let zone = parse_quote!("Europe/Prague");
        assert!(times(&parse_quote!("0 3 * * *"), Some(&zone), &mut errors).is_none());
        let error = syn::Error::new(proc_macro2::Span::call_site(), MISSING).to_compile_error();
        assert_eq!(errors.to_token_stream().to_string(), quote!(#error).to_string());
    }
}

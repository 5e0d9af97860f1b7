//! The `key = value` lists that attributes take.

use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Token};

use crate::errors::Errors;
use crate::names::did_you_mean;

/// The settings of one attribute, each key known and there once.
#[derive(Default)]
pub(crate) struct Settings(Vec<Setting>);

struct Setting {
    key: Ident,
    /// None where the key stands alone or before something in parentheses.
    value: Option<Expr>,
}

impl Settings {
    /// Reads the settings of `attribute`, which has the `known` keys.
    pub(crate) fn read(attribute: &str, known: &[&str], tokens: TokenStream, errors: &mut Errors) -> Self {
        let parser = Punctuated::<Setting, Token![,]>::parse_terminated;
        let Some(written) = errors.keep(parser.parse2(tokens)) else {
            return Self::default();
        };
        let mut settings = Self::default();
        for setting in written {
            let key = setting.key.to_string();
            if !known.contains(&key.as_str()) {
                errors.at(&setting.key, unknown(attribute, known, &key));
            } else if settings.find(&key).is_some() {
                errors.at(&setting.key, format!("`{key}` stands here twice; remove one"));
            } else {
                settings.0.push(setting);
            }
        }
        settings
    }

    /// The string that was given for `key`.
    pub(crate) fn text(&self, key: &str, errors: &mut Errors) -> Option<LitStr> {
        let setting = self.find(key)?;
        match &setting.value {
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => Some(text.clone()),
            _ => setting.wrong(format!("`{key}` takes a string: `{key} = \"..\"`"), errors),
        }
    }

    /// The name of a function that was given for `key`.
    pub(crate) fn function(&self, key: &str, errors: &mut Errors) -> Option<Ident> {
        let setting = self.find(key)?;
        let name = match &setting.value {
            Some(Expr::Path(path)) => path.path.get_ident().cloned(),
            _ => None,
        };
        name.or_else(|| {
            let remedy = "the bare name of a function in this `impl` block";
            setting.wrong(format!("`{key}` takes {remedy}: `{key} = function`"), errors)
        })
    }

    fn find(&self, key: &str) -> Option<&Setting> {
        self.0.iter().find(|setting| setting.key == key)
    }
}

impl Setting {
    fn wrong<T>(&self, message: String, errors: &mut Errors) -> Option<T> {
        match &self.value {
            Some(value) => errors.at(value, message),
            None => errors.at(&self.key, message),
        }
        None
    }
}

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key = input
            .call(Ident::parse_any)
            .map_err(|error| syn::Error::new(error.span(), "settings are written `key = value`"))?;
        let mut value = None;
        if input.parse::<Option<Token![=]>>()?.is_some() {
            value = Some(input.parse()?);
        } else if input.peek(syn::token::Paren) {
            let unread;
            syn::parenthesized!(unread in input);
            unread.parse::<TokenStream>()?;
        }
        Ok(Self { key, value })
    }
}

fn unknown(attribute: &str, known: &[&str], key: &str) -> String {
    let meant = did_you_mean(key, known.iter().copied());
    let listed: Vec<_> = known.iter().map(|key| format!("`{key}`")).collect();
    match listed.as_slice() {
        [only] => format!("`{attribute}` has no key `{key}`; the only one is {only}"),
        keys => format!("`{attribute}` has no key `{key}`, only {}{meant}", keys.join(", ")),
    }
}

//! The `key = value` lists of attributes.

use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Token, Type};

use crate::errors::Errors;
use crate::names::did_you_mean;
use crate::near_miss;

/// The settings of one attribute: each key is known and occurs once.
#[derive(Default)]
pub(crate) struct Settings(Vec<Setting>);

struct Setting {
    key: Ident,
    value: Value,
}

enum Value {
    Missing,
    /// `key = expression`.
    Expression(Expr),
    /// `key = Type`.
    Type(Type),
    /// `key(..)`, not yet read.
    Nested(TokenStream),
}

/// The keys with a type as their value. All others have an expression.
const TYPES: [&str; 4] = ["reply", "replies", "key", "entity"];

impl Settings {
    pub(crate) fn read(attribute: &str, known: &[&str], tokens: TokenStream, errors: &mut Errors) -> Self {
        Self::read_if_any(attribute, known, tokens, errors).unwrap_or_default()
    }

    fn read_if_any(
        attribute: &str,
        known: &[&str],
        tokens: TokenStream,
        errors: &mut Errors,
    ) -> Option<Self> {
        let parser = Punctuated::<Setting, Token![,]>::parse_terminated;
        let written = errors.record(parser.parse2(tokens))?;
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
        Some(settings)
    }

    pub(crate) fn text(&self, key: &str, errors: &mut Errors) -> Option<LitStr> {
        self.expression(key, &format!("a string: `{key} = \"..\"`"), errors, |value| match value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.clone()),
            _ => None,
        })
    }

    pub(crate) fn texts(&self, key: &str, errors: &mut Errors) -> Vec<LitStr> {
        let text = |value: &Expr| match strip_groups(value) {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.clone()),
            _ => None,
        };
        let takes = format!("a string, or several: `{key} = \"..\"` or `{key} = [\"..\", \"..\"]`");
        let texts = self.expression(key, &takes, errors, |value| match value {
            Expr::Array(several) => several.elems.iter().map(text).collect::<Option<Vec<_>>>(),
            value => text(value).map(|text| vec![text]),
        });
        texts.unwrap_or_default()
    }

    pub(crate) fn function(&self, key: &str, errors: &mut Errors) -> Option<Ident> {
        let takes = format!("the bare name of a function in this `impl` block: `{key} = function`");
        self.expression(key, &takes, errors, |value| match value {
            Expr::Path(path) => path.path.get_ident().cloned(),
            _ => None,
        })
    }

    pub(crate) fn ty(&self, key: &str, errors: &mut Errors) -> Option<Type> {
        let setting = self.find(key)?;
        match &setting.value {
            Value::Type(ty) => Some(ty.clone()),
            _ => setting.type_mismatch(&takes_a_type(key), errors),
        }
    }

    /// The settings given for `key` in parentheses, with the `known` keys.
    pub(crate) fn nested(
        &self,
        key: &str,
        known: &[&str],
        example: &str,
        errors: &mut Errors,
    ) -> Option<Settings> {
        let setting = self.find(key)?;
        match &setting.value {
            Value::Nested(tokens) => Settings::read_if_any(key, known, tokens.clone(), errors),
            _ => {
                setting.type_mismatch(&format!("`{key}` takes settings in parentheses: `{example}`"), errors)
            }
        }
    }

    pub(crate) fn is_nested(&self, key: &str) -> bool {
        self.find(key).is_some_and(|setting| matches!(setting.value, Value::Nested(_)))
    }

    pub(crate) fn is_bare(&self, key: &str) -> bool {
        self.find(key).is_some_and(|setting| matches!(setting.value, Value::Missing))
    }

    pub(crate) fn tokens(&self, key: &str, example: &str, errors: &mut Errors) -> Option<TokenStream> {
        let setting = self.find(key)?;
        match &setting.value {
            Value::Nested(tokens) => Some(tokens.clone()),
            _ => setting.type_mismatch(&format!("write `{example}`"), errors),
        }
    }

    /// The value of `key`, as converted by `read`. If that fails, the error says what the key `takes`.
    pub(crate) fn expression<T>(
        &self,
        key: &str,
        takes: &str,
        errors: &mut Errors,
        read: impl FnOnce(&Expr) -> Option<T>,
    ) -> Option<T> {
        let setting = self.find(key)?;
        let value = match &setting.value {
            Value::Expression(value) => read(strip_groups(value)),
            _ => None,
        };
        value.or_else(|| setting.type_mismatch(&format!("`{key}` takes {takes}"), errors))
    }

    pub(crate) fn flag(&self, key: &str, errors: &mut Errors) -> bool {
        match self.find(key) {
            None => false,
            Some(Setting { value: Value::Missing, .. }) => true,
            Some(setting) => {
                let _: Option<()> =
                    setting.type_mismatch(&format!("`{key}` takes no value: write `{key}`"), errors);
                true
            }
        }
    }

    pub(crate) fn key(&self, key: &str) -> Option<&Ident> {
        self.find(key).map(|setting| &setting.key)
    }

    fn find(&self, key: &str) -> Option<&Setting> {
        self.0.iter().find(|setting| setting.key == key)
    }
}

impl Setting {
    fn type_mismatch<T>(&self, message: &str, errors: &mut Errors) -> Option<T> {
        match &self.value {
            Value::Expression(value) => errors.at(value, message),
            Value::Type(value) => errors.at(value, message),
            Value::Missing | Value::Nested(_) => errors.at(&self.key, message),
        }
        None
    }
}

const KEY_VALUE: &str = "settings are written `key = value`";

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key = input.call(Ident::parse_any).map_err(|error| syn::Error::new(error.span(), KEY_VALUE))?;
        let value = if input.parse::<Option<Token![=]>>()?.is_some() {
            Value::parse(&key.to_string(), input)?
        } else if input.peek(syn::token::Paren) {
            let unread;
            syn::parenthesized!(unread in input);
            Value::Nested(unread.parse()?)
        } else if input.is_empty() || input.peek(Token![,]) {
            Value::Missing
        } else {
            return Err(input.error(KEY_VALUE));
        };
        Ok(Self { key, value })
    }
}

impl Value {
    fn parse(key: &str, input: ParseStream<'_>) -> syn::Result<Self> {
        // The key of an element of the context is a text.
        if !TYPES.contains(&key) || input.peek(Lit) {
            return input.parse().map(Value::Expression);
        }
        let ty = input.parse().map(Value::Type);
        ty.map_err(|error| syn::Error::new(error.span(), takes_a_type(key)))
    }
}

/// The expression without the invisible delimiters of a macro that produced it.
fn strip_groups(value: &Expr) -> &Expr {
    match value {
        Expr::Group(group) => strip_groups(&group.expr),
        value => value,
    }
}

fn takes_a_type(key: &str) -> String {
    format!("`{key}` takes a type: `{key} = YourType`")
}

fn unknown(attribute: &str, known: &[&str], key: &str) -> String {
    if let Some(hint) = near_miss::hint(attribute, key) {
        return format!("`{attribute}` has no key `{key}`; write {hint}");
    }
    let meant = did_you_mean(key, known.iter().copied());
    let quoted: Vec<_> = known.iter().map(|key| format!("`{key}`")).collect();
    match quoted.as_slice() {
        [only] => format!("`{attribute}` has no key `{key}`; the only one is {only}"),
        keys => format!("`{attribute}` has no key `{key}`, only {}{meant}", keys.join(", ")),
    }
}

//! Shared by the derives: reading the one attribute of the type, and the check that the type is not generic.

use syn::{Data, DeriveInput, Meta};

use crate::errors::Errors;
use crate::settings::Settings;

/// The attribute that a derive reads: its name, its keys, and how to write it.
pub(crate) struct Attribute {
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [&'static str],
    pub(crate) example: &'static str,
}

impl Attribute {
    /// The settings in the attribute of this type, which occurs at most once.
    pub(crate) fn settings(&self, input: &DeriveInput, errors: &mut Errors) -> Settings {
        let Self { name, keys, example } = self;
        let mut attributes = input.attrs.iter().filter(|it| it.path().is_ident(name));
        let settings = match attributes.next().map(|attribute| &attribute.meta) {
            None => Settings::default(),
            Some(Meta::List(list)) => {
                Settings::read(&format!("#[{name}]"), keys, list.tokens.clone(), errors)
            }
            Some(other) => {
                errors.at(other, format!("write `{example}`"));
                Settings::default()
            }
        };
        for repeated in attributes {
            errors.at(repeated, format!("`#[{name}]` stands here twice; remove one"));
        }
        settings
    }
}

/// Whether it is a single type, a struct or an enum. Otherwise reports why it cannot be `what`.
pub(crate) fn is_one_type(input: &DeriveInput, what: &str, generic: &str, errors: &mut Errors) -> bool {
    if !input.generics.params.is_empty() {
        errors.at(&input.generics, format!("{what} cannot be generic: {generic}"));
        return false;
    }
    if let Data::Union(data) = &input.data {
        errors.at(data.union_token, format!("{what} is a struct or an enum"));
        return false;
    }
    true
}

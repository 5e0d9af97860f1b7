//! `#[message(redact(card, cvc))]`: the fields of a message whose values are not shown, under the names that serde stores.

use proc_macro2::TokenStream;
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Expr, ExprLit, Field, Fields, Ident, Lit, Meta, Token};

use crate::errors::Errors;
use crate::names::did_you_mean;
use crate::settings::Settings;

/// A field of the message, with the rule by which serde renames it.
pub(crate) struct Stored<'a> {
    pub(crate) field: &'a Field,
    rule: Option<String>,
}

pub(crate) fn stored_names(
    fields: TokenStream,
    settings: &Settings,
    input: &DeriveInput,
    errors: &mut Errors,
) -> Vec<String> {
    let parser = |input: ParseStream<'_>| {
        Punctuated::<Ident, Token![,]>::parse_terminated_with(input, Ident::parse_any)
    };
    let Some(idents) = errors.record(parser.parse2(fields)) else { return vec![] };
    if idents.is_empty() {
        errors
            .at(settings.key("redact"), "name the fields that are not shown: `redact(field, another_field)`");
    }
    let known = fields_of(input);
    let mut names = vec![];
    for ident in idents {
        let name = ident.unraw().to_string();
        let named: Vec<_> = known.iter().filter(|it| it.name() == name).collect();
        if named.is_empty() {
            let known: Vec<_> = known.iter().map(Stored::name).collect();
            let meant = did_you_mean(&name, known.iter().map(String::as_str));
            errors.at(&ident, format!("`{}` has no field `{name}`{meant}", input.ident));
        }
        for stored in named {
            if has(&stored.field.attrs, "flatten") {
                let message = "a flattened field is stored without its name; redact fields of a type that is not flattened";
                errors.at(&ident, message);
            }
            names.push(stored.stored_name());
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

pub(crate) fn fields_of(input: &DeriveInput) -> Vec<Stored<'_>> {
    match &input.data {
        Data::Struct(data) => stored_fields(&data.fields, value_of(&input.attrs, "rename_all")),
        Data::Enum(data) => {
            let of_all = value_of(&input.attrs, "rename_all_fields");
            let variants = data.variants.iter();
            variants
                .flat_map(|variant| {
                    let rule = value_of(&variant.attrs, "rename_all").or_else(|| of_all.clone());
                    stored_fields(&variant.fields, rule)
                })
                .collect()
        }
        Data::Union(_) => vec![],
    }
}

fn stored_fields(fields: &Fields, rule: Option<String>) -> Vec<Stored<'_>> {
    let named = matches!(fields, Fields::Named(_)).then(|| fields.iter()).into_iter().flatten();
    named.map(|field| Stored { field, rule: rule.clone() }).collect()
}

impl Stored<'_> {
    pub(crate) fn name(&self) -> String {
        self.field.ident.as_ref().map(|ident| ident.unraw().to_string()).unwrap_or_default()
    }

    pub(crate) fn stored_name(&self) -> String {
        value_of(&self.field.attrs, "rename").unwrap_or_else(|| renamed(&self.name(), self.rule.as_deref()))
    }
}

fn renamed(field: &str, rule: Option<&str>) -> String {
    let pascal = || -> String {
        let words = field.split('_').filter(|word| !word.is_empty());
        let capital = |word: &str| {
            let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
            first.to_ascii_uppercase() + rest
        };
        words.map(capital).collect()
    };
    match rule {
        Some("PascalCase") => pascal(),
        Some("camelCase") => {
            let pascal = pascal();
            let (first, rest) = pascal.split_at(pascal.chars().next().map_or(0, char::len_utf8));
            first.to_ascii_lowercase() + rest
        }
        Some("UPPERCASE" | "SCREAMING_SNAKE_CASE") => field.to_ascii_uppercase(),
        Some("kebab-case") => field.replace('_', "-"),
        Some("SCREAMING-KEBAB-CASE") => field.to_ascii_uppercase().replace('_', "-"),
        _ => field.to_owned(),
    }
}

/// The settings of serde. Its own derive reports their mistakes.
fn serde_settings(attributes: &[Attribute]) -> impl Iterator<Item = Meta> + '_ {
    let own = attributes.iter().filter(|it| it.path().is_ident("serde"));
    own.filter_map(|attribute| {
        attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()
    })
    .flatten()
}

pub(crate) fn has(attributes: &[Attribute], key: &str) -> bool {
    serde_settings(attributes).any(|setting| setting.path().is_ident(key))
}

fn value_of(attributes: &[Attribute], key: &str) -> Option<String> {
    let text = |value: &Expr| match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    };
    serde_settings(attributes).filter(|setting| setting.path().is_ident(key)).find_map(
        |setting| match setting {
            Meta::NameValue(pair) => text(&pair.value),
            Meta::List(list) => {
                let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
                parts.into_iter().find_map(|pair| match pair {
                    Meta::NameValue(pair) if pair.path.is_ident("serialize") => text(&pair.value),
                    _ => None,
                })
            }
            Meta::Path(_) => None,
        },
    )
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn names(fields: TokenStream, input: TokenStream) -> (Vec<String>, Errors) {
        let mut errors = Errors::default();
        let input = syn::parse2(input).unwrap();
        let names = stored_names(fields, &Settings::default(), &input, &mut errors);
        (names, errors)
    }

    #[test]
    fn renamed_field_is_redacted_under_its_stored_name() {
        for (rule, stored) in [
            ("lowercase", "card_number"),
            ("snake_case", "card_number"),
            ("camelCase", "cardNumber"),
            ("PascalCase", "CardNumber"),
            ("UPPERCASE", "CARD_NUMBER"),
            ("SCREAMING_SNAKE_CASE", "CARD_NUMBER"),
            ("kebab-case", "card-number"),
            ("SCREAMING-KEBAB-CASE", "CARD-NUMBER"),
        ] {
            let input = quote!(
                #[serde(rename_all = #rule, default)]
                struct Order {
                    card_number: String,
                }
            );
            let (names, errors) = names(quote!(card_number), input);
            assert!(errors.is_empty());
            assert_eq!(names, [stored], "{rule}");
        }
        let input = quote!(
            #[serde(rename_all = "camelCase")]
            struct Order {
                #[serde(default, rename(serialize = "no", deserialize = "nr"))]
                card_number: String,
                r#type: String,
            }
        );
        assert_eq!(names(quote!(card_number, r#type), input).0, ["no", "type"]);
    }

    #[test]
    fn name_in_an_enum_stands_for_the_fields_of_all_variants() {
        let input = quote!(
            #[serde(rename_all_fields = "camelCase")]
            enum Payment {
                ByCard {
                    card_number: String,
                },
                #[serde(rename_all = "kebab-case")]
                Again {
                    card_number: String,
                },
                Cash(u32),
            }
        );
        assert_eq!(names(quote!(card_number,), input).0, ["card-number", "cardNumber"]);
    }
}

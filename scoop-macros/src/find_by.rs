//! `#[message(find_by(order, customer))]`: the fields by which operators find runs, under the names that serde stores.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Ident, Token};

use crate::errors::Errors;
use crate::names::did_you_mean;
use crate::redact::{Stored, fields_of, has};
use crate::settings::Settings;

/// The maximum number of fields, as in the core.
const FIELDS_MAX: usize = 8;

/// The maximum length of a stored name in bytes, as in the core.
const NAME_BYTES_MAX: usize = 63;

/// The kinds, with their variants.
const KINDS: [(&str, &str); 3] = [("text", "Text"), ("number", "Number"), ("time", "Time")];

/// A field in the list, with its kind if that is written.
struct Written {
    field: Ident,
    kind: Option<Ident>,
}

impl Parse for Written {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let field = Ident::parse_any(input)?;
        let kind = input.parse::<Option<Token![=]>>()?.map(|_| Ident::parse_any(input)).transpose()?;
        Ok(Self { field, kind })
    }
}

/// The constant of the fields, if they are listed.
pub(crate) fn constant(
    settings: &Settings,
    input: &DeriveInput,
    redacted: &[String],
    errors: &mut Errors,
) -> Option<TokenStream> {
    let tokens = settings.tokens("find_by", "find_by(field, another_field)", errors)?;
    let parser = Punctuated::<Written, Token![,]>::parse_terminated;
    let written = errors.record(parser.parse2(tokens))?;
    let key = settings.key("find_by")?;
    if written.is_empty() {
        errors.at(key, "name the fields by which runs are found: `find_by(field, another_field)`");
    }
    if !matches!(input.data, Data::Struct(_)) {
        errors.at(key, "runs are found by fields of a struct; move these fields into one");
        return None;
    }
    if let Some(ninth) = written.iter().nth(FIELDS_MAX) {
        errors.at(&ninth.field, format!("runs are found by {FIELDS_MAX} fields at most; remove the others"));
    }
    let known = fields_of(input);
    let (mut fields, mut names) = (vec![], vec![]);
    for Written { field, kind } in written {
        let kind = kind.map(|kind| variant_of(&kind, errors));
        let Some(stored) = stored(&field, &known, input, errors) else { continue };
        let name = stored.stored_name();
        if let Err(why) = check(&name, stored, (redacted, &names)) {
            errors.at(&field, why);
            continue;
        }
        let kind = match kind {
            // Its mistake is reported.
            Some(None) => continue,
            Some(Some(variant)) => quote!(::scoop::FindKind::#variant),
            None => {
                let ty = &stored.field.ty;
                quote_spanned!(ty.span()=> ::scoop::__private::find_kind::<#ty>())
            }
        };
        fields.push(quote!(::scoop::FindField { name: #name, kind: #kind }));
        names.push(name);
    }
    Some(quote!(
        const FIND_BY: &'static [::scoop::FindField] = &[#(#fields),*];
    ))
}

/// The field of this name.
fn stored<'a>(
    field: &Ident,
    known: &'a [Stored<'a>],
    input: &DeriveInput,
    errors: &mut Errors,
) -> Option<&'a Stored<'a>> {
    let name = field.unraw().to_string();
    let stored = known.iter().find(|it| it.name() == name);
    if stored.is_none() {
        let known: Vec<_> = known.iter().map(Stored::name).collect();
        let meant = did_you_mean(&name, known.iter().map(String::as_str));
        errors.at(field, format!("`{}` has no field `{name}`{meant}", input.ident));
    }
    stored
}

/// Checks that runs can be found by a field with this stored name.
fn check(name: &str, stored: &Stored<'_>, (redacted, before): (&[String], &[String])) -> Result<(), String> {
    let attributes = &stored.field.attrs;
    if has(attributes, "flatten") {
        let why =
            "a flattened field is stored without its name; find by fields of a type that is not flattened";
        return Err(why.into());
    }
    if has(attributes, "skip") || has(attributes, "skip_serializing") {
        return Err(format!("`{name}` is not stored; remove it here, or the `skip` of serde"));
    }
    if redacted.iter().any(|it| it == name) {
        let instead = "remove it from `find_by`, or from `redact`";
        return Err(format!("`{name}` is redacted, and lists of runs would show it; {instead}"));
    }
    if before.iter().any(|it| it == name) {
        return Err(format!("`{name}` stands here twice; remove one"));
    }
    let is_word = |char: char| char.is_alphanumeric() || "_-".contains(char);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_word) {
        let allowed = format!("1 to {NAME_BYTES_MAX} bytes of letters, digits, `_` and `-`");
        return Err(format!("runs are found by fields with a stored name of {allowed}, not `{name}`"));
    }
    Ok(())
}

/// The variant of a kind.
fn variant_of(kind: &Ident, errors: &mut Errors) -> Option<Ident> {
    let name = kind.to_string();
    if let Some((_, variant)) = KINDS.iter().find(|(known, _)| *known == name) {
        return Some(Ident::new(variant, kind.span()));
    }
    let meant = did_you_mean(&name, KINDS.iter().map(|(known, _)| *known));
    errors.at(kind, format!("a field is a `text`, a `number` or a `time`, not a `{name}`{meant}"));
    None
}

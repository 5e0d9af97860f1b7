//! `crate = path`: the name of the crate `scoop` in a program that has renamed it.
//!
//! The generators write `::scoop`. If there is a path, it replaces that in their result. The user's own `::scoop` is
//! another crate then; it passes as `::r#scoop`, which is the same name to the compiler.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::Parser;
use syn::{DeriveInput, Meta, Path};

const NAME: &str = "scoop";

/// The result of an attribute with these arguments, which may contain `crate = path`.
pub(crate) fn of_attribute(
    arguments: TokenStream,
    item: TokenStream,
    expand: fn(TokenStream, TokenStream) -> TokenStream,
) -> TokenStream {
    match split(arguments.clone()) {
        Ok((None, _)) => expand(arguments, item),
        Ok((Some(path), arguments)) => {
            renamed(expand(replaced(arguments, &raw), replaced(item, &raw)), &path)
        }
        Err(error) => {
            let error = error.to_compile_error();
            quote!(#error #item)
        }
    }
}

/// The result of a derive whose attribute has this name, and may contain `crate = path`.
pub(crate) fn of_derive(
    attribute: &str,
    input: TokenStream,
    expand: fn(TokenStream) -> TokenStream,
) -> TokenStream {
    let Ok(mut item) = syn::parse2::<DeriveInput>(input.clone()) else { return expand(input) };
    let mut lists = item.attrs.iter_mut().filter(|it| it.path().is_ident(attribute));
    let Some(Meta::List(list)) = lists.next().map(|attribute| &mut attribute.meta) else {
        return expand(input);
    };
    match split(list.tokens.clone()) {
        Ok((None, _)) => expand(input),
        Ok((Some(path), rest)) => {
            list.tokens = rest;
            renamed(expand(replaced(item.into_token_stream(), &raw)), &path)
        }
        Err(error) => error.to_compile_error(),
    }
}

/// What an attribute generates that has the arguments of another one.
pub(crate) fn like(attribute: &Meta, generated: TokenStream) -> TokenStream {
    match attribute {
        Meta::List(list) => match split(list.tokens.clone()) {
            Ok((Some(path), _)) => renamed(generated, &path),
            Ok((None, _)) | Err(_) => generated,
        },
        Meta::Path(_) | Meta::NameValue(_) => generated,
    }
}

fn split(settings: TokenStream) -> syn::Result<(Option<Path>, TokenStream)> {
    let (mut path, mut rest, mut setting) = (None, TokenStream::new(), TokenStream::new());
    let mut tokens = settings.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let ends = is_punct(&token, ',') || tokens.peek().is_none();
        setting.extend([token]);
        if ends {
            let setting = std::mem::take(&mut setting);
            match value(setting.clone()) {
                Some((key, value)) if path.is_none() => path = Some(parsed(&key, value)?),
                _ => rest.extend(setting),
            }
        }
    }
    Ok((path, rest))
}

/// The value of a setting `crate = value`, without the comma after it.
fn value(setting: TokenStream) -> Option<(Ident, TokenStream)> {
    let mut tokens = setting.into_iter();
    match (tokens.next()?, tokens.next()?) {
        (TokenTree::Ident(key), equals) if key == "crate" && is_punct(&equals, '=') => {
            Some((key, tokens.filter(|token| !is_punct(token, ',')).collect()))
        }
        _ => None,
    }
}

fn parsed(key: &Ident, value: TokenStream) -> syn::Result<Path> {
    let path = Path::parse_mod_style.parse2(value.clone());
    path.map_err(|_| {
        let message = "`crate` takes the path of this library: `crate = your_name_of_it`";
        if value.is_empty() {
            syn::Error::new(key.span(), message)
        } else {
            syn::Error::new_spanned(value, message)
        }
    })
}

fn renamed(generated: TokenStream, path: &Path) -> TokenStream {
    replaced(generated, &|name: &Ident| {
        let span = name.span();
        let path = path.to_token_stream().into_iter().map(|mut token| {
            // An error at a generated path is reported at the user's tokens that it stands for.
            token.set_span(token.span().located_at(span));
            token
        });
        (true, path.collect())
    })
}

/// `::scoop` as `::r#scoop`.
fn raw(name: &Ident) -> (bool, TokenStream) {
    (false, Ident::new_raw(NAME, name.span()).into_token_stream())
}

/// The tokens with a replacement for each `scoop` after a `::`, and also for that `::` if it returns true.
fn replaced(tokens: TokenStream, replacement: &dyn Fn(&Ident) -> (bool, TokenStream)) -> TokenStream {
    let mut output: Vec<TokenTree> = vec![];
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), replaced(group.stream(), replacement));
                inner.set_span(group.span());
                output.push(inner.into());
            }
            TokenTree::Ident(name) if name == NAME && ends_in_colons(&output) => {
                let (with_colons, instead) = replacement(&name);
                if with_colons {
                    output.truncate(output.len() - 2);
                }
                output.extend(instead);
            }
            token => output.push(token),
        }
    }
    output.into_iter().collect()
}

fn ends_in_colons(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [.., one, two] if is_punct(one, ':') && is_punct(two, ':'))
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(code: &str) -> TokenStream {
        code.parse().expect("tokens")
    }

    #[test]
    fn path_is_split_from_the_other_settings() {
        let (path, rest) =
            split(tokens("name = \"a\", crate = ours::sagas, retention(a = \"b, c\")")).unwrap();
        assert_eq!(path.to_token_stream().to_string(), "ours :: sagas");
        assert_eq!(rest.to_string(), tokens("name = \"a\", retention(a = \"b, c\")").to_string());
        assert!(split(tokens("crate = \"sagas\"")).is_err());
        assert!(split(tokens("crate =, name = \"a\"")).is_err());
        assert!(split(tokens("crate")).unwrap().0.is_none(), "a key without a value");
    }

    #[test]
    fn generated_paths_are_replaced_and_those_of_the_user_stay() {
        let keep = |_, item: TokenStream| quote!(impl ::scoop::Saga for A { #item });
        let code = of_attribute(tokens("crate = sagas"), tokens("fn a() -> ::scoop::B { scoop::c() }"), keep);
        let expected = "impl sagas::Saga for A { fn a() -> ::r#scoop::B { scoop::c() } }";
        assert_eq!(code.to_string(), tokens(expected).to_string());
    }
}

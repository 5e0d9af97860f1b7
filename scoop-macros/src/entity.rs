//! `#[entity]`: an `impl` block whose functions apply events to a state.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Ident, PathArguments, ReceiverKind, ReturnType, Safety, Signature, Type};

use crate::errors::Errors;
use crate::names::{self, Kind, kebab_case};
use crate::saga::parameters::typed;
use crate::saga::parse::Block;
use crate::saga::types::{last_segment, referenced, strip_groups, text};
use crate::settings::Settings;

const EXAMPLE: &str = "#[entity(name = \"..\", key = YourKey)]";

/// An application: the function, and the type of the event.
struct Application<'a> {
    function: &'a Ident,
    event: &'a Type,
}

/// The user's block, with the entity or all its mistakes.
pub(crate) fn entity(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let block = match (|input: ParseStream<'_>| Block::parse_below("entity", input)).parse2(item.clone()) {
        Ok(block) => block,
        Err(error) => {
            let error = error.to_compile_error();
            return quote!(#error #item);
        }
    };
    let mut errors = Errors::default();
    let Some(ident) = own_type(&block, "entity", "an entity", &mut errors) else {
        return quote!(#errors #block);
    };
    let settings = Settings::read("#[entity]", &["name", "key", "table"], arguments, &mut errors);
    let name = settings.text("name", &mut errors);
    let name = names::stored(Kind::Entity, name.as_ref(), &ident, kebab_case, &mut errors);
    let key = settings.ty("key", &mut errors);
    if settings.key("key").is_none() {
        errors.at(&block.self_ty, format!("`{ident}` has no type of keys; write `{EXAMPLE}`"));
    }
    let in_table = settings.flag("table", &mut errors);
    let applications = applications(&block, &mut errors);
    if applications.is_empty() && errors.is_empty() {
        let message = "an entity changes by events; write `fn applied(&mut self, event: &YourEvent) { .. }`";
        errors.at(&block.self_ty, message);
    }
    let ty = &block.self_ty;
    let events: Vec<_> = applications.iter().map(|it| it.event).collect();
    let applies = applications.iter().map(|Application { function, event }| {
        let call = quote_spanned!(function.span()=> Self::#function(self, event));
        quote! {
            impl ::scoop::Applies<#event> for #ty {
                fn apply(&mut self, event: &#event) {
                    #call
                }
            }
        }
    });
    let table = in_table.then(|| {
        let of = quote_spanned!(ty.span()=> ::scoop::__private::Table::of::<#ty>());
        quote! {
            const IN_TABLE: bool = true;

            fn table() -> ::core::option::Option<
                &'static (dyn ::core::any::Any + ::core::marker::Send + ::core::marker::Sync),
            > {
                const TABLE: ::scoop::__private::Table = #of;
                ::core::option::Option::Some(&TABLE)
            }
        }
    });
    let implementation = key.map(|key| {
        quote! {
            impl ::scoop::Entity for #ty {
                const NAME: &'static str = #name;
                type Key = #key;
                #table

                fn applications() -> ::std::vec::Vec<::scoop::__private::Application> {
                    ::std::vec![#(::scoop::__private::Application::of::<Self, #events>()),*]
                }
            }
        }
    });
    let registration = errors.is_empty().then(|| {
        quote! {
            ::scoop::__private::inventory::submit! {
                ::scoop::__private::EntityRegistration::new::<#ty>()
            }
        }
    });
    quote!(#errors #block #(#applies)* #implementation #registration)
}

/// The name of the type of the block, if that can be `what`, written with `attribute`.
pub(crate) fn own_type(block: &Block, attribute: &str, what: &str, errors: &mut Errors) -> Option<Ident> {
    for repeated in &block.repeated {
        errors.at(repeated, format!("`#[{attribute}]` stands here twice; remove one"));
    }
    if let Some(of_trait) = &block.of_trait {
        let hint = format!("write `impl {} {{ .. }}`", text(&block.self_ty));
        errors.at(of_trait, format!("`#[{attribute}]` belongs on a block without a trait; {hint}"));
        return None;
    }
    let Some(segment) = last_segment(&block.self_ty) else {
        errors.at(&block.self_ty, format!("{what} is a struct or an enum; name one"));
        return None;
    };
    let generics = &block.generics;
    let is_generic = !matches!(segment.arguments, PathArguments::None);
    if !generics.params.is_empty() || generics.where_clause.is_some() || is_generic {
        errors.at(&block.self_ty, format!("{what} cannot be generic: it is stored by its name"));
        return None;
    }
    Some(segment.ident.clone())
}

/// Each function with `&mut self` is the application of an event; others are the user's own.
fn applications<'a>(block: &'a Block, errors: &mut Errors) -> Vec<Application<'a>> {
    let mut applications: Vec<Application<'_>> = vec![];
    for function in block.functions() {
        for step in &function.steps {
            errors.at(step, "`#[step]` belongs to a saga, or to `fetch` of a command; remove this");
        }
        let sig = &function.sig;
        let changes = sig
            .receiver()
            .is_some_and(|receiver| matches!(receiver.kind, ReceiverKind::Reference(_, _, Some(_))));
        let Some(event) = changes.then(|| event(sig, errors)).flatten() else { continue };
        match applications.iter().find(|it| strip_groups(it.event) == strip_groups(event)) {
            Some(Application { function, .. }) => {
                let message =
                    format!("`{function}` applies `{}` already; remove one of the two", text(event));
                errors.at(event, message);
            }
            None => applications.push(Application { function: &sig.ident, event }),
        }
    }
    applications
}

fn event<'a>(sig: &'a Signature, errors: &mut Errors) -> Option<&'a Type> {
    let name = &sig.ident;
    let write = format!("write `fn {name}(&mut self, event: &YourEvent)`");
    if let Some(asyncness) = &sig.asyncness {
        errors.at(
            asyncness,
            format!("`{name}` runs while its entity is locked, so it cannot be `async`; {write}"),
        );
    }
    if let Safety::Unsafe(unsafety) = &sig.safety {
        errors.at(unsafety, format!("the entity calls `{name}`, so it cannot be `unsafe`; {write}"));
    }
    if !sig.generics.params.is_empty() {
        errors.at(
            &sig.generics,
            format!("`{name}` applies one type of events, so it cannot be generic; {write}"),
        );
    }
    if let ReturnType::Type(_, ty) = &sig.output
        && !matches!(strip_groups(ty), Type::Tuple(unit) if unit.elems.is_empty())
    {
        errors.at(ty, format!("`{name}` applies an event, which cannot fail and has no result; {write}"));
    }
    match typed(sig).collect::<Vec<_>>().as_slice() {
        [parameter] => match referenced(&parameter.ty) {
            Some(event) => return Some(event),
            None => errors.at(&parameter.ty, format!("an event is passed by reference; {write}")),
        },
        [] => errors.at(name, format!("each function with `&mut self` here applies an event; {write}, or move it to another `impl` block")),
        [_, second, ..] => errors.push(syn::Error::new(
            second.span(),
            format!("each function with `&mut self` here applies one event; {write}, or move it to another `impl` block"),
        )),
    }
    None
}

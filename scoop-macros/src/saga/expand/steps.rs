//! The steps as an enum and as data.

use std::hash::{DefaultHasher, Hash, Hasher};

use proc_macro2::{Literal, Span, TokenStream};
use quote::{format_ident, quote};
use syn::{Ident, Path};

use crate::names;
use crate::saga::model::{Delivery, Outline, Step, Variant};

/// The enum of the steps, for jumps and for the engine.
///
/// It has a module of its own, so that only its import and the saga itself conflict with another `#[saga]` block of the
/// type, and not each trait of the enum.
pub(super) fn step_enum(outline: &Outline) -> TokenStream {
    let Outline { ident, step_enum, variants, .. } = outline;
    let (step_enum, module) = (at_call_site(step_enum), module(outline));
    let about = format!(" The steps of `{ident}`, in their order.");
    let docs = variants.iter().map(|it| format!(" The step `{}`.", it.name));
    let names: Vec<_> = variants.iter().map(|it| at_call_site(&it.ident)).collect();
    let trait_impl = (!names.is_empty()).then(|| {
        let all = variants.iter().zip(&names).flat_map(|(it, name)| std::iter::repeat_n(name, it.steps));
        let index = index(variants, &names);
        quote! {
            impl ::scoop::Step for #step_enum {
                const ALL: &'static [Self] = &[#(Self::#all),*];

                fn index(self) -> usize {
                    #index
                }
            }
        }
    });
    // A second block is reported at its attribute.
    let (from, import) = (unplaced(&module), unplaced(&step_enum));
    quote! {
        #[allow(non_snake_case)]
        mod #module {
            #[doc = #about]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum #step_enum {
                #(#[doc = #docs] #names,)*
            }
            #trait_impl
        }
        #[allow(unused_imports)]
        pub use #from::#import;
    }
}

fn unplaced(ident: &Ident) -> Ident {
    Ident::new(&ident.to_string(), Span::call_site())
}

/// The path of the enum, which no other block of the type has.
pub(super) fn step_path(outline: &Outline) -> Path {
    let (module, step_enum) = (module(outline), at_call_site(&outline.step_enum));
    syn::parse_quote!(#module::#step_enum)
}

/// The module of the enum. No other block has one of that name, not even a saga of the same name in an outer
/// module, which `use super::*` would import.
fn module(Outline { ident, .. }: &Outline) -> Ident {
    let module = format_ident!("__steps_of_{ident}_at_{:x}", span_number(), span = ident.span());
    at_call_site(&module)
}

/// A number that is unique to the place of the attribute; zero outside of a compilation.
fn span_number() -> u64 {
    if !proc_macro::is_available() {
        return 0;
    }
    let span = proc_macro::Span::call_site();
    let mut hasher = DefaultHasher::new();
    (span.file(), span.line(), span.column()).hash(&mut hasher);
    hasher.finish()
}

/// The position of the variant's first step in the protocol.
fn index(variants: &[Variant], names: &[Ident]) -> TokenStream {
    if variants.iter().all(|it| it.steps == 1) {
        return quote!(self as usize);
    }
    let mut steps_before = 0;
    let arms = variants.iter().zip(names).map(|(it, name)| {
        let index = Literal::usize_unsuffixed(steps_before);
        steps_before += it.steps;
        quote!(Self::#name => #index,)
    });
    quote!(match self { #(#arms)* })
}

/// The steps of the variant in the protocol: one, or up to three.
pub(super) fn definition(step: &Step) -> TokenStream {
    let Step { name, was, rollback, on_child_failure, delivery, .. } = step;
    let compensated = rollback.as_ref().map(|_| quote!(.compensated()));
    let handling = on_child_failure.as_ref().map(|_| quote!(.handling_child_failure()));
    let formerly = |suffix| {
        let was: Vec<_> = was.iter().map(|was| format!("{was}{suffix}")).collect();
        (!was.is_empty()).then(|| quote!(.formerly(&[#(#was),*])))
    };
    let needs: Vec<_> = step.invoke.values.iter().filter(|it| !it.optional).map(|it| &it.step).collect();
    let needing = (!needs.is_empty()).then(|| quote!(.needing(&[#(#needs),*])));
    let beside = |suffix, kind: TokenStream| {
        let (name, formerly) = (format!("{name}{suffix}"), formerly(suffix));
        quote! {
            ::scoop::__private::StepDefinition::new(#name)
                .of_kind(::scoop::__private::StepKind::#kind)
                #formerly
        }
    };
    let wait = step.at.as_ref().map(|_| beside(names::WAITING, quote!(Wait)));
    let awaiting = step.awaits.as_ref().map(|awaits| {
        let (step, ty) = (beside(names::AWAITING, quote!(Wait)), &awaits.ty);
        quote!(#step.awaiting(::scoop::__private::name_of_signal::<#ty>()))
    });
    let finally = step.finally.as_ref().map(|_| beside(names::FINALLY, quote!(Finally)));
    let formerly = formerly("");
    let once = (*delivery == Delivery::AtMostOnce).then(|| quote!(.at_most_once()));
    let code = quote!(::scoop::__private::StepDefinition::new(#name) #compensated #handling #formerly #needing #once);
    let steps = wait.into_iter().chain(awaiting).chain([code]).chain(finally);
    quote!(#(#steps),*)
}

/// The identifier at the same place, but not as the user's own, so that no lint applies.
pub(super) fn at_call_site(ident: &Ident) -> Ident {
    let span = Span::call_site().located_at(ident.span());
    Ident::new(&ident.to_string(), span)
}

//! The messages of a saga with several topics, as an enum.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use super::steps::at_call_site;
use crate::saga::model::Outline;
use crate::saga::subscription::MessageEnum;

/// The enum, with the conversions of its messages.
pub(super) fn message_enum(outline: &Outline) -> Option<TokenStream> {
    let MessageEnum { ident: own, variants, .. } = outline.any.as_ref()?;
    let saga = &outline.ident;
    let about = format!(" A message of `{saga}`.");
    let own = &at_call_site(own);
    let fields = variants.iter().map(|(variant, message)| {
        let (about, variant) = (format!(" A message of type `{variant}`."), at_call_site(variant));
        quote!(#[doc = #about] #variant(#message))
    });
    let conversions = variants.iter().map(|(variant, message)| {
        let variant = at_call_site(variant);
        let span = Span::call_site().located_at(message.span());
        quote_spanned! {span=>
            impl ::core::convert::From<#message> for #own {
                fn from(message: #message) -> Self {
                    Self::#variant(message)
                }
            }
        }
    });
    let each = variants.iter().map(|(_, message)| {
        let span = Span::call_site().located_at(message.span());
        quote_spanned!(span=> ::scoop::__private::HandledMessage::of::<#message>())
    });
    let topics = variants.iter().enumerate().skip(1).map(|(index, (variant, message))| {
        let why = format!(
            "`{variant}` has the topic of a message before it, so a payload on that topic could be of either type"
        );
        let index = Literal::usize_unsuffixed(index);
        let span = Span::call_site().located_at(message.span());
        quote_spanned! {span=>
            const _: () = ::core::assert!(::scoop::__private::has_own_topic::<#own>(#index), #why);
        }
    });
    Some(quote! {
        #[doc = #about]
        #[allow(private_interfaces, dead_code, clippy::large_enum_variant)]
        pub enum #own {
            #(#fields,)*
        }
        #(#conversions)*
        impl ::scoop::__private::Handled for #own {
            const MESSAGES: &'static [::scoop::__private::HandledMessage<Self>] = &[#(#each),*];
        }
        #(#topics)*
    })
}

//! The messages of a saga with several topics: an enum of them, or a struct.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Ident, Type};

use super::steps::at_call_site;
use crate::saga::model::Outline;
use crate::saga::subscription::{Join, Key, Messages};

/// The type of the messages, with what belongs to it.
pub(super) fn messages(outline: &Outline) -> Option<TokenStream> {
    let messages = outline.messages.as_ref()?;
    Some(match &messages.join {
        None => any(outline, messages),
        Some(join) => joined(outline, messages, join),
    })
}

fn any(outline: &Outline, messages: &Messages) -> TokenStream {
    let Messages { ident: own, members, .. } = messages;
    let own = &at_call_site(own);
    let about = format!(" A message of `{}`.", outline.ident);
    let fields = members.iter().map(|(variant, message)| {
        let (about, variant) = (format!(" A message of type `{variant}`."), at_call_site(variant));
        quote!(#[doc = #about] #variant(#message))
    });
    let conversions = members.iter().map(|(variant, message)| {
        let variant = at_call_site(variant);
        quote_spanned! {span_of(message)=>
            impl ::core::convert::From<#message> for #own {
                fn from(message: #message) -> Self {
                    Self::#variant(message)
                }
            }
        }
    });
    let each = members.iter().map(|(_, message)| {
        quote_spanned!(span_of(message)=> ::scoop::__private::HandledMessage::of::<#message>())
    });
    let topics = own_topics(messages, own, &quote!(has_own_topic));
    quote! {
        #[doc = #about]
        #[allow(private_interfaces, dead_code, clippy::large_enum_variant)]
        pub enum #own {
            #(#fields,)*
        }
        #(#conversions)*
        impl ::scoop::__private::Handled for #own {
            const MESSAGES: &'static [::scoop::__private::HandledMessage<Self>] = &[#(#each),*];
        }
        #topics
    }
}

fn joined(outline: &Outline, messages: &Messages, join: &Join) -> TokenStream {
    let Messages { ident: own, members, .. } = messages;
    let own = &at_call_site(own);
    let about = format!(" The messages that `{}` joins.", outline.ident);
    let names: Vec<_> = members.iter().map(|(name, _)| at_call_site(name)).collect();
    let fields = members.iter().zip(&names).map(|((_, message), name)| {
        let about = " One of them.";
        quote!(#[doc = #about] pub #name: #message)
    });
    let sound = messages.is_sound().then(|| sound_join(messages, join, own, &names));
    quote! {
        #[doc = #about]
        #[allow(private_interfaces, dead_code)]
        pub struct #own {
            #(#fields,)*
        }
        #sound
    }
}

fn sound_join(messages: &Messages, join: &Join, own: &Ident, names: &[Ident]) -> TokenStream {
    let Join { topic, keys, .. } = join;
    let each = || messages.members.iter().map(|(_, message)| message).zip(keys);
    let by = each().map(|(message, key)| {
        let borrow = matches!(key, Key::Function(_)).then(|| quote!(&));
        let key = key_of(key, message, &quote!(of));
        quote_spanned! {span_of(message)=>
            impl ::scoop::__private::JoinedBy<#message> for #own {
                fn key(of: &#message) -> ::std::string::String {
                    ::scoop::__private::key_text(#borrow #key)
                }
            }
        }
    });
    let members = each().map(|(message, _)| {
        quote_spanned!(span_of(message)=> ::scoop::__private::JoinMember::of::<Self, #message>())
    });
    let same = each().zip(each().skip(1)).map(|((one, one_key), (other, other_key))| {
        let one_key = key_of(one_key, one, &quote!(one));
        let other_key = key_of(other_key, other, &quote!(other));
        quote_spanned! {span_of(other)=>
            const _: fn(&#one, &#other) = |one, other| ::scoop::__private::same_key(#one_key, #other_key);
        }
    });
    let topics = own_topics(messages, own, &quote!(has_own_member_topic));
    quote! {
        #(#by)*
        #(#same)*
        impl ::scoop::__private::Joined for #own {
            const TOPIC: &'static str = #topic;
            const MEMBERS: &'static [::scoop::__private::JoinMember] = &[#(#members),*];

            fn join(set: &mut ::scoop::__private::JoinedSet) -> ::scoop::__private::Decoded<Self> {
                ::core::result::Result::Ok(Self { #(#names: set.take()?,)* })
            }
        }
        impl ::scoop::__private::Handled for #own {
            const MESSAGES: &'static [::scoop::__private::HandledMessage<Self>] =
                &[::scoop::__private::HandledMessage::joined()];
        }
        #topics
    }
}

pub(super) fn join_constant(messages: &Messages) -> Option<TokenStream> {
    let Messages { ident: own, join, .. } = messages;
    let within = match join.as_ref()?.within {
        Some(within) => {
            let ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
            quote!(::core::option::Option::Some(::core::time::Duration::from_millis(#ms)))
        }
        None => quote!(::core::option::Option::None),
    };
    Some(quote! {
        const JOIN: ::core::option::Option<::scoop::__private::Join> =
            ::core::option::Option::Some(::scoop::__private::Join::of::<#own>(#within));
    })
}

fn key_of(key: &Key, ty: &Type, message: &TokenStream) -> TokenStream {
    match key {
        Key::Field(field) => quote_spanned!(span_of(ty)=> &#message.#field),
        Key::Function(function) => quote_spanned!(span_of(ty)=> #function(#message)),
    }
}

fn own_topics(messages: &Messages, own: &Ident, check: &TokenStream) -> TokenStream {
    let each = messages.members.iter().enumerate().skip(1).map(|(index, (_, message))| {
        let why = format!(
            "`{}` has the topic of a message before it, so a payload on that topic could be of either type",
            crate::saga::types::text(message)
        );
        let index = Literal::usize_unsuffixed(index);
        quote_spanned! {span_of(message)=>
            const _: () = ::core::assert!(::scoop::__private::#check::<#own>(#index), #why);
        }
    });
    quote!(#(#each)*)
}

fn span_of(message: &Type) -> Span {
    Span::call_site().located_at(message.span())
}

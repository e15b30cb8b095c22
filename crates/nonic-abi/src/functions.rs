//! A macro for prototypes: each is written once, and checked where the function is called and where it is exported.

/// Declares functions that one of the libraries exports and another calls, in the module `$module`.
///
/// Each name becomes two things: the function, for a library that is linked with the exporting one, and a type of that
/// name, for one that looks it up by name when it runs. The macro `$check`, called in the exporting library where all
/// the functions can be seen, compares every one of them with its type: a prototype that differs, or a function that is
/// declared here and not defined there, does not compile.
macro_rules! functions {
    ($module:ident, $check:ident; $($(#[$meta:meta])* extern $abi:literal fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $answer:ty)?;)*) => {
        $(
            $(#[$meta])*
            pub type $name = unsafe extern $abi fn($($type),*) $(-> $answer)?;
            unsafe extern $abi {
                $(#[$meta])*
                pub fn $name($($argument: $type),*) $(-> $answer)?;
            }
        )*

        /// To be called in the library that exports these functions, where all of them can be seen: each has the type that
        /// callers believe it has.
        #[macro_export]
        macro_rules! $check {
            () => { $( const _: $crate::$module::$name = $name; )* };
        }
    };
}

# Shows Doxygen the comments of this code as documentation: "//" alone means nothing to it.
s@ : SignatureOf<.*> \{@ {@  # a base that it takes for itself
s@ +// NOLINT.*@@
\@^ *//@{
  s@^( *)// ----.*@\1//@
  s@[<>#%\\]@\\&@g
  s@^( *)//@\1///@
  1s@^/// @/// \\file\n/// @
}
\@^[^"]*[;,{)] +// @{
  h
  s@.*[;,{)] +// @@
  s@[<>#%\\]@\\&@g
  x
  s@^([^"]*[;,{)]) +// .*@\1  ///< @
  G
  s@\n@@
}

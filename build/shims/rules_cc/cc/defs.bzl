"""The part of rules_cc that Bazel 4 itself loads, forwarded to the rules built into Bazel."""

cc_library = native.cc_library
cc_binary = native.cc_binary
cc_test = native.cc_test
cc_import = native.cc_import
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite

def cc_flags_supplier(**_kwargs):
    """Serves make-variables that nothing here uses."""

def compiler_flag(**_kwargs):
    """Serves a select() on the compiler that nothing here uses."""

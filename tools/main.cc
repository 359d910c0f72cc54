#include "tools/command.h"

int main(int argc, char** argv) { return trimtab::RunCommand(argc, argv); }

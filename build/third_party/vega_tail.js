Object.assign(modules['vega-dataflow'].transforms, modules['vega-transforms'],
              modules['vega-view-transforms'], modules['vega-encode']);
return {
  parse: modules['vega-parser'].parse,
  View: modules['vega-view'].View,
  expressionInterpreter: modules['vega-interpreter'].expressionInterpreter,
};
})();

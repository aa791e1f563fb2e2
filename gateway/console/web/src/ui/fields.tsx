import { useState, type ReactElement, type ReactNode } from "react";
import {
  Button, Checkbox, ComboBox, FieldError, Input, Label, ListBox, ListBoxItem, Popover, Select, SelectValue, Text, TextArea, TextField, type Key,
} from "react-aria-components";
import { t } from "../text/text";
import { Icon } from "./icons";

type Common = { label: string; hint?: ReactNode; error?: string; required?: boolean };

function Below({ hint, error }: { hint?: ReactNode; error?: string }): ReactElement {
  return (
    <>
      {hint && <Text slot="description" className="hint">{hint}</Text>}
      <FieldError className="error">{error}</FieldError>
    </>
  );
}

function Name({ label, required }: { label: string; required?: boolean }): ReactElement {
  return (
    <Label>
      {label}
      {required && <span className="required" aria-hidden="true"> *</span>}
    </Label>
  );
}

type TextInputProps = Common & {
  value: string;
  onChange: (value: string) => void;
  type?: string;
  lines?: number;
  placeholder?: string;
  autoComplete?: string;
  autoFocus?: boolean;
  mono?: boolean;
  inputMode?: "numeric" | "email" | "text";
  name?: string;
};

export function TextInput(props: TextInputProps): ReactElement {
  const { label, hint, error, required, lines, placeholder, mono, autoComplete, ...field } = props;
  const className = mono ? "mono" : undefined;
  return (
    <TextField {...field} isInvalid={!!error} isRequired={required} validationBehavior="aria" className="field">
      <Name label={label} required={required} />
      {lines ? (
        <TextArea rows={lines} placeholder={placeholder} className={className} spellCheck={false} />
      ) : (
        <Input placeholder={placeholder} className={className} autoComplete={autoComplete ?? "off"} spellCheck={false} />
      )}
      <Below hint={hint} error={error} />
    </TextField>
  );
}

type Option = { id: string; label: string; hint?: string };

export function Choice(props: Common & { value: string; onChange: (value: string) => void; options: Option[]; canClear?: boolean }): ReactElement {
  const options = props.canClear && props.value ? [...props.options, { id: "", label: t("None") }] : props.options;
  return (
    <Select
      className="field"
      selectedKey={props.value || null}
      onSelectionChange={(key: Key | null) => props.onChange(key ? String(key) : "")}
      isInvalid={!!props.error}
      isRequired={props.required}
      validationBehavior="aria"
      placeholder={t("Choose")}
    >
      <Name label={props.label} required={props.required} />
      <Button className="select">
        <SelectValue />
        <Icon name="down" />
      </Button>
      <Below hint={props.hint} error={props.error} />
      <Popover className="popover" offset={4}>
        <ListBox className="options" items={options}>
          {(option) => <ListBoxItem id={option.id} textValue={option.label}>{option.label}</ListBoxItem>}
        </ListBox>
      </Popover>
    </Select>
  );
}

export function Tick(props: Common & { value: boolean; onChange: (value: boolean) => void }): ReactElement {
  return (
    <div className="field">
      <Checkbox className="tick" isSelected={props.value} onChange={props.onChange} isInvalid={!!props.error}>
        <span className="box" aria-hidden="true"><Icon name="check" /></span>
        {props.label}
      </Checkbox>
      {props.hint && <span className="hint">{props.hint}</span>}
      {props.error && <span className="error" role="alert">{props.error}</span>}
    </div>
  );
}

// Picker searches options as one types. onSearch is called with the text.
export function Picker(
  props: Common & {
    value: Option | undefined;
    onChange: (value: Option | undefined) => void;
    options: Option[];
    onSearch: (text: string) => void;
    isLoading?: boolean;
  },
): ReactElement {
  const [text, setText] = useState(props.value?.label ?? "");
  const options = props.value && !props.options.some((o) => o.id === props.value!.id) ? [props.value, ...props.options] : props.options;
  return (
    <ComboBox
      className="field"
      items={options}
      inputValue={text}
      selectedKey={props.value?.id ?? null}
      onInputChange={(value) => {
        setText(value);
        if (value !== props.value?.label) props.onSearch(value);
        if (!value && props.value) props.onChange(undefined);
      }}
      onSelectionChange={(key: Key | null) => {
        const option = options.find((o) => o.id === key);
        if (!option) return;
        setText(option.label);
        props.onChange(option);
      }}
      isInvalid={!!props.error}
      isRequired={props.required}
      validationBehavior="aria"
      menuTrigger="focus"
      allowsEmptyCollection
      defaultFilter={() => true}
    >
      <Name label={props.label} required={props.required} />
      <div className="combo">
        <Input placeholder={t("Type to search")} />
        <Button aria-label={t("Show options")}><Icon name="down" /></Button>
      </div>
      <Below hint={props.hint} error={props.error} />
      <Popover className="popover" offset={4}>
        <ListBox className="options" renderEmptyState={() => <p className="none">{props.isLoading ? t("Loading") : t("Nothing found.")}</p>}>
          {(option: Option) => (
            <ListBoxItem id={option.id} textValue={option.label}>
              {option.label} <span className="mute">{option.hint}</span>
            </ListBoxItem>
          )}
        </ListBox>
      </Popover>
    </ComboBox>
  );
}
